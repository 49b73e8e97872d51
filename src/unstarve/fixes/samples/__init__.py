"""The structure of a sample, used by every dataset and loader.

structure       the tree of containers: taken apart, rebuilt, batched
leaves          the values in it, as rows of tensors
dtypes          the table of element types
file_structure  the structure of the sample in a tensor file
built_batch     a finished batch for loaders that collate
gather          indexed rows → one batch
labels          a label per file
random_streams  which generator a thread draws from
"""
