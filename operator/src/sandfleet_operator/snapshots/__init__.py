"""The store of snapshots: a folder or S3. Its code blocks, for threads of its own; `aio` is its async face.

`backends/s3.py` is the only importer of boto3, and is loaded only for stores on S3.
"""
