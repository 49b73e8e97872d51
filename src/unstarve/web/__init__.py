"""`unstarve serve`: the runs of one folder as a web app. Needs the extra ``unstarve[web]``.

`server`         listens on a port, serves the app, shuts down
`web_app`        the addresses and their handlers
`guard`          access control: host, token, origin; security headers
`responses`      HTML, JSON and refusals
`run_folder`     the runs of a folder, by id; deleting; naming uploads
`upload`         a run file from the network into the folder
`run_views`      the list of runs, live views
`jobs`           what is computed for a run: its line in the list, its page
`job_pool`       runs jobs in processes with limits
`private_paths`  hides the folders of this machine
"""
