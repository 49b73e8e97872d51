"""`unstarve serve`: the runs of one folder as a web app. Needs the extra ``unstarve[web]``.

`folder`     the runs of a folder, by ids; deleting; naming what is uploaded
`jobs`       what is worked out for a run: its line in the list, its page
`desk`       who does the jobs, how many at a time, and when one is given up
`process`    one job in a process of its own, within limits
`connected`  work for somebody who may leave before it is done
`private`    texts without the folders of this machine
`shelf`      the lines of the list: kept while a run stays as it is, filled in behind the answer
`guard`      who may ask for what: host, token, origin; the headers of every answer
`upload`     a run file, from the network into the folder
`live`       a running training as server-sent events
`pages`      the app's own HTML
`app`        addresses and what answers them
`server`     the port, the signals, the end
"""
