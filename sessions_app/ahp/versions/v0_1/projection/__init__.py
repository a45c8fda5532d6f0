"""AHP 0.1 made of the core's events and states.

``values`` what actions and states share · ``actions`` an event as an action · ``sessions`` a session's state and summary ·
``agents`` what agents are and can be configured to.

The law that holds between ``actions`` and ``sessions``: a state at N, folded with the actions after N, is the state now.
"""
