"""Many samples in one file: written once, then read at the speed of the storage or of memory.

packed_format    the file format, and the schema of a sample
packed_codec     a sample ↔ its schema, shapes and bytes
packed_file      an open file: index and tables, checked
packed_access    how bytes reach memory
packed_contents  samples and batches, and the check of all checksums
packed_chunks    `ChunkShuffleSampler`, and chunks read ahead
packed_dataset   `PackedDataset`
packed_partial   the folder in which a file is written
packed_writer    `PackedWriter`
packing_sources  what `unstarve pack` packs; `source_files` finds the files
packing_job      the work of `unstarve pack`
"""
