"""AHP 0.1.

Pure: ``wire`` · ``reducers`` · ``negotiation`` · ``client_side``. Made of the core's values: ``projection``. With the core:
``commands`` · ``dispatch`` · ``snapshots`` · ``errors``. ``version`` puts them together.
"""
