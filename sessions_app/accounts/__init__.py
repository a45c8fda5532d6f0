"""Sign-in of people: one for the admin and the console. Below both faces, which share what it has about requests and pages."""
