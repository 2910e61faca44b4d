"""The console: tables at work as a web page, for people who are woken at night.

guard       who may ask, and what every answer forbids the browser
app         what is asked: the page, the tables, the stream of changes, one instant, actions
state       what a table looks like as one JSON value, and what changed between two of them
watch       looking at a table once for all who watch it
details     all there is to know of one instant
actions     what the buttons do, and the jobs that they start
serving     the app on a port
assets/     the page: plain files, which a browser takes as they are
"""
