"""manage.py doctor: looks at everything that a deployment needs, and says what to do about what is wrong."""
