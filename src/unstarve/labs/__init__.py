"""Labs: exercises that check themselves.

lab.py         the nouns: a lab, its faults, its questions
all_labs.py    the list of labs
started.py     a lab in the learner's folder: what was drawn, what was committed
workload.py    what the datasets of labs do: the faults, as real work
nsys_recording.py  an nsys export of a training with a bottleneck that the seed draws
parts_*.py     the lab on faster parts: its draw, its data, its harness, its judge
harness.py     trains with a loader of the learner's and digests what it delivers; a process of its own
harness_process.py  runs a harness
judge.py       decides whether the learner got there
specs/         one module a lab: its faults, hints and questions
material/      what the learner gets, one folder a lab
"""
