"""Python lists and dicts of a dataset in memory that its workers share.

share        `unstarve.share`: finds a dataset's lists and dicts and replaces them
encoding     values → arrays in an unnamed file
layouts      where the arrays lie; what a worker gets instead of the values
columns      arrays → values
shared_list  the interface of a list
shared_dict  the interface of a dict
"""
