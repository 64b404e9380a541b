"""How much of what is free can be used: free is not the same as placeable, as profiles start only at certain units."""

from gpuloom.gpus.catalogue import base_profiles
from gpuloom.gpus.layouts import places_beside, remembered, slices_of, total_slices
from gpuloom.gpus.model import GpuModel, Layout


@remembered
def free_slices(model: GpuModel, used: Layout) -> int:
    """Compute slices that no instance of `used` holds."""
    return total_slices(model) - sum(slices_of(model, used))


@remembered
def free_units(model: GpuModel, used: Layout) -> int:
    """Memory units that no instance of `used` holds."""
    return model.units - sum(model.by_name[instance.profile].size for instance in used)


@remembered
def largest_placeable(model: GpuModel, used: Layout) -> int:
    """Compute slices of the largest base profile that can be created beside `used`, destroying nothing; 0 if none."""
    return max(
        (profile.slices for profile in base_profiles(model) if places_beside(model, used, profile.name)), default=0
    )


@remembered
def largest_suggested(model: GpuModel, used: Layout) -> int:
    """Compute slices of the largest base profile that free slices and free memory units suffice for; 0 if none."""
    slices, units = free_slices(model, used), free_units(model, used)
    fitting = (profile for profile in base_profiles(model) if profile.slices <= slices and profile.size <= units)
    return max((profile.slices for profile in fitting), default=0)


@remembered
def fragmentation(model: GpuModel, used: Layout) -> float:
    """1 - (largest placeable profile / largest profile that free capacity suggests), both in compute slices.

    0: free capacity is as good as it looks, or there is none (a full GPU, one without MIG). 1: there is some, and none
    of it can be used. An A100 with 1g at 0, 1 and 5 has four slices free, enough for 4g, but 2g at 2 is the largest
    that can be placed: 0.5. Pass the instances in use; an idle one may be destroyed, so it counts as free.
    """
    suggested = largest_suggested(model, used)
    return 1 - largest_placeable(model, used) / suggested if suggested else 0.0
