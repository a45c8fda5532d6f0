"""manage.py doctor: checks everything that a deployment needs, and reports faults with their fixes."""
