"""What must hold between the fields of one job, whichever file it came from."""

from gpuloom.work.model import Job, Kind


def contradiction(job: Job) -> tuple[str, str] | None:
    """The first field that contradicts another, and the rest of the sentence; None if all is well."""
    if job.kind is Kind.SLICEABLE and job.gpus != 1:
        return "gpus", f"is {job.gpus}, but a sliceable job runs on one GPU or a part of it (kind: rigid or elastic?)"
    if job.kind is Kind.ELASTIC:
        if job.min_gpus > job.max_gpus:
            return "min_gpus", f"is {job.min_gpus}, but must be at most max_gpus ({job.max_gpus})"
        if not job.min_gpus <= job.gpus <= job.max_gpus:
            return "gpus", f"is {job.gpus}, but must be from min_gpus ({job.min_gpus}) to max_gpus ({job.max_gpus})"
    if job.min_batch is not None and job.max_batch is not None and job.min_batch > job.max_batch:
        return "min_batch", f"is {job.min_batch}, but must be at most max_batch ({job.max_batch})"
    if job.batch is not None:
        if job.min_batch is not None and job.batch < job.min_batch:
            return "batch", f"is {job.batch}, but must be at least min_batch ({job.min_batch})"
        if job.max_batch is not None and job.batch > job.max_batch:
            return "batch", f"is {job.batch}, but must be at most max_batch ({job.max_batch})"
    return None
