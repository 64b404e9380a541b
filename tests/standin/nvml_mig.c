/* The half of the stand-in that cuts: GPU instances, compute instances, and the MIG devices that processes see. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

/* --- GPU instances --------------------------------------------------------------------------------------------- */

static const struct profile *profile_with(const struct model *model, unsigned id) {
    for (unsigned i = 0; i < model->profile_count; i++)
        if (model->profiles[i].id == id) return &model->profiles[i];
    return NULL;
}

static code describe(const struct call *call, const struct seen *seen, unsigned number, const struct profile **found) {
    const struct model *model = seen->model;
    if (number >= 0x12) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < model->profile_count; i++)
        if (model->profiles[i].number == number) {
            *found = &model->profiles[i];
            return OK;
        }
    return replayed_absence(model, call->function, seen->gpu->mig, number);
}

API code nvmlDeviceGetGpuInstanceProfileInfo(handle device, unsigned number, struct instance_profile *info) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, info, INVALID_ARGUMENT);
    NEED(call, tells_profiles(&seen), NOT_SUPPORTED);
    const struct profile *profile = NULL;
    code error = describe(&call, &seen, number, &profile);
    NEED(call, error == OK, error);
    *info = (struct instance_profile){.id = profile->id,
                                      .slices = profile->slices,
                                      .count = profile->limit,
                                      .sms = profile->sms,
                                      .copies = profile->slices,
                                      .mem_mib = profile->mem_mib};
    return leave(&call, OK);
}

API code nvmlDeviceGetGpuInstanceProfileInfoV(handle device, unsigned number, struct instance_profile2 *info) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, info, INVALID_ARGUMENT);
    NEED(call, info->version == (2u << 24 | sizeof *info), VERSION_MISMATCH);
    NEED(call, tells_profiles(&seen), NOT_SUPPORTED);
    const struct profile *profile = NULL;
    code error = describe(&call, &seen, number, &profile);
    NEED(call, error == OK, error);
    *info = (struct instance_profile2){.version = info->version,
                                       .id = profile->id,
                                       .slices = profile->slices,
                                       .count = profile->limit,
                                       .sms = profile->sms,
                                       .copies = profile->slices,
                                       .mem_mib = profile->mem_mib};
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
    return leave(&call, OK);
}

/* Every placement of the profile, whatever is there already, as the driver answers. */
API code nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle device, unsigned id, struct place *places,
                                                       unsigned *count) {
    SEE(call, seen, device, 1 << DEVICE);
    const struct profile *profile = profile_with(seen.model, id);
    NEED(call, count, INVALID_ARGUMENT);
    NEED(call, profile && tells_profiles(&seen), NOT_SUPPORTED);
    NEED(call, privileged(), NO_PERMISSION);
    NEED(call, !places || *count >= profile->places, INSUFFICIENT_SIZE);
    for (unsigned i = 0; places && i < profile->places; i++)
        places[i] = (struct place){i * profile->step, profile->size};
    *count = profile->places;
    return leave(&call, OK);
}

/* Whether the GPU has room: memory units, compute slices, the profile's own limit, the media engines. */
static int fits(const struct seen *seen, const struct profile *profile, unsigned start) {
    unsigned slices = profile->slices, same = 0;
    for (unsigned i = 0; i < MAX_INSTANCES; i++) {
        const struct instance *gi = &seen->gpu->instances[i];
        if (!gi->used) continue;
        const struct profile *other = &seen->model->profiles[gi->profile];
        int all = profile->media == ALL_MEDIA || other->media == ALL_MEDIA;
        int media = (profile->media == SOME_MEDIA || profile->media == ALL_MEDIA) &&
                    (other->media == SOME_MEDIA || other->media == ALL_MEDIA);
        if (start < gi->start + other->size && gi->start < start + profile->size) return 0;
        if (media || (all && profile->media != NO_MEDIA && other->media != NO_MEDIA)) return 0;
        slices += other->slices;
        same += other == profile;
    }
    return slices <= seen->model->slices && same < profile->limit;
}

API code nvmlDeviceGetGpuInstanceRemainingCapacity(handle device, unsigned id, unsigned *count) {
    SEE(call, seen, device, 1 << DEVICE);
    const struct profile *profile = profile_with(seen.model, id);
    NEED(call, count, INVALID_ARGUMENT);
    NEED(call, profile && seen.gpu->mig, NOT_SUPPORTED);
    *count = 0;
    for (unsigned i = 0; i < profile->places; i++) *count += (unsigned)fits(&seen, profile, i * profile->step);
    return leave(&call, OK);
}

/* As on real GPUs: 0 is the whole, 1 and 2 its halves, 3 to 6 the quarters, 7 and on the eighths. */
static unsigned instance_id(const struct model *model, const struct profile *profile, unsigned start) {
    unsigned level = 1;
    while (level * 2 * profile->size <= model->units) level *= 2;
    return level - 1 + start / profile->size;
}

static code create_instance(struct call *call, struct seen *seen, const struct profile *profile, unsigned start,
                            handle *made) {
    if (!fits(seen, profile, start)) return INSUFFICIENT_RESOURCES;
    for (unsigned i = 0; i < MAX_INSTANCES; i++) {
        struct instance *gi = &seen->gpu->instances[i];
        if (gi->used) continue;
        *gi = (struct instance){.used = 1,
                                .id = instance_id(seen->model, profile, start),
                                .profile = (unsigned)(profile - seen->model->profiles),
                                .start = start,
                                .serial = ++call->world.serial};
        seen->gi = gi;
        *made = instance_handle(seen);
        call->changed = 1;
        return OK;
    }
    return INSUFFICIENT_RESOURCES;
}

API code nvmlDeviceCreateGpuInstanceWithPlacement(handle device, unsigned id, const struct place *place, handle *made) {
    SEE(call, seen, device, 1 << DEVICE);
    const struct profile *profile = profile_with(seen.model, id);
    NEED(call, place && made, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    NEED(call, profile && seen.gpu->mig, NOT_SUPPORTED);
    NEED(call,
         place->size == profile->size && place->start % profile->step == 0 &&
             place->start / profile->step < profile->places,
         INVALID_ARGUMENT);
    return leave(&call, create_instance(&call, &seen, profile, place->start, made));
}

/* Left to itself the driver takes the first place that is free, good or bad. */
API code nvmlDeviceCreateGpuInstance(handle device, unsigned id, handle *made) {
    SEE(call, seen, device, 1 << DEVICE);
    const struct profile *profile = profile_with(seen.model, id);
    code result = INSUFFICIENT_RESOURCES;
    NEED(call, made, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    NEED(call, profile && seen.gpu->mig, NOT_SUPPORTED);
    for (unsigned i = 0; i < profile->places && result != OK; i++)
        result = create_instance(&call, &seen, profile, i * profile->step, made);
    return leave(&call, result);
}

API code nvmlGpuInstanceDestroy(handle instance) {
    SEE(call, seen, instance, 1 << INSTANCE);
    NEED(call, privileged(), NO_PERMISSION);
    for (unsigned i = 0; i < MAX_COMPUTES; i++) NEED(call, !seen.gi->computes[i].used, IN_USE);
    NEED(call, !in_use(&call, seen.number, (int)seen.gi->id, -1), IN_USE);
    seen.gi->used = 0;
    call.changed = 1;
    return leave(&call, OK);
}

API code nvmlDeviceGetGpuInstances(handle device, unsigned id, handle *found, unsigned *count) {
    SEE(call, seen, device, 1 << DEVICE);
    const struct profile *profile = profile_with(seen.model, id);
    NEED(call, found && count, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    NEED(call, profile && seen.gpu->mig, NOT_SUPPORTED);
    *count = 0;
    for (unsigned i = 0; i < MAX_INSTANCES; i++) {
        seen.gi = &seen.gpu->instances[i];
        if (seen.gi->used && &seen.model->profiles[seen.gi->profile] == profile)
            found[(*count)++] = instance_handle(&seen);
    }
    return leave(&call, OK);
}

API code nvmlDeviceGetGpuInstanceById(handle device, unsigned id, handle *found) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, found, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    NEED(call, seen.gpu->mig, NOT_SUPPORTED);
    seen.gi = instance_with(seen.gpu, id);
    NEED(call, seen.gi, NOT_FOUND);
    *found = instance_handle(&seen);
    return leave(&call, OK);
}

API code nvmlGpuInstanceGetInfo(handle instance, struct instance_info *info) {
    SEE(call, seen, instance, 1 << INSTANCE);
    NEED(call, info, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    *info = (struct instance_info){
        make_handle(DEVICE, seen.number, 0, 0, 0), seen.gi->id, seen.profile->id, {seen.gi->start, seen.profile->size}};
    return leave(&call, OK);
}

/* --- compute instances ----------------------------------------------------------------------------------------- */

/* Compute slices by NVML's enumeration, which is also the id: 1, 2, 3, 4, 7, 8, 6, and two variants nobody has here. */
static unsigned compute_slices(const struct profile *profile, unsigned number) {
    static const unsigned SLICES[] = {1, 2, 3, 4, 7, 8, 6};
    unsigned slices = number < 7 ? SLICES[number] : 0;
    int thirds = slices == 3 && profile->slices == 4; /* 4g is cut in one, two or four */
    return slices <= profile->slices && !thirds ? slices : 0;
}

static unsigned compute_number(unsigned slices) { return slices == 7 ? 4 : slices - 1; }

static code describe_compute(const struct seen *seen, unsigned number, unsigned engines, struct compute_profile *info) {
    if (number >= 9 || engines) return INVALID_ARGUMENT;
    unsigned slices = compute_slices(seen->profile, number);
    if (!slices) return NOT_SUPPORTED;
    *info = (struct compute_profile){.id = number,
                                     .slices = slices,
                                     .count = seen->profile->slices / slices,
                                     .sms = seen->profile->sms * slices / seen->profile->slices};
    return OK;
}

API code nvmlGpuInstanceGetComputeInstanceProfileInfo(handle instance, unsigned number, unsigned engines,
                                                      struct compute_profile *info) {
    SEE(call, seen, instance, 1 << INSTANCE);
    NEED(call, info, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    return leave(&call, describe_compute(&seen, number, engines, info));
}

API code nvmlGpuInstanceGetComputeInstanceProfileInfoV(handle instance, unsigned number, unsigned engines,
                                                       struct compute_profile2 *info) {
    SEE(call, seen, instance, 1 << INSTANCE);
    NEED(call, info, INVALID_ARGUMENT);
    NEED(call, info->version == (2u << 24 | sizeof *info), VERSION_MISMATCH);
    NEED(call, privileged(), NO_PERMISSION);
    code error = describe_compute(&seen, number, engines, &info->base);
    if (error == OK && info->base.slices == seen.profile->slices)
        snprintf(info->name, sizeof info->name, "MIG %s", seen.profile->name);
    else if (error == OK)
        snprintf(info->name, sizeof info->name, "MIG %uc.%s", info->base.slices, seen.profile->name);
    return leave(&call, error);
}

API code nvmlGpuInstanceCreateComputeInstance(handle instance, unsigned id, handle *made) {
    SEE(call, seen, instance, 1 << INSTANCE);
    NEED(call, made, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    unsigned slices = compute_slices(seen.profile, id), taken = 0, lowest = 0;
    NEED(call, slices, NOT_SUPPORTED);
    for (unsigned i = 0; i < MAX_COMPUTES; i++) taken += seen.gi->computes[i].used ? seen.gi->computes[i].slices : 0;
    NEED(call, taken + slices <= seen.profile->slices, INSUFFICIENT_RESOURCES);
    while (compute_with(seen.gi, lowest)) lowest++;
    for (unsigned i = 0; i < MAX_COMPUTES && !seen.ci; i++)
        if (!seen.gi->computes[i].used) seen.ci = &seen.gi->computes[i];
    NEED(call, seen.ci, INSUFFICIENT_RESOURCES);
    *seen.ci = (struct compute){1, lowest, slices, taken, ++call.world.serial};
    *made = make_handle(COMPUTE, seen.number, seen.gi->id, seen.ci->id, seen.ci->serial);
    call.changed = 1;
    return leave(&call, OK);
}

API code nvmlComputeInstanceDestroy(handle compute) {
    SEE(call, seen, compute, 1 << COMPUTE);
    NEED(call, privileged(), NO_PERMISSION);
    NEED(call, !in_use(&call, seen.number, (int)seen.gi->id, (int)seen.ci->id), IN_USE);
    seen.ci->used = 0;
    call.changed = 1;
    return leave(&call, OK);
}

API code nvmlGpuInstanceGetComputeInstances(handle instance, unsigned id, handle *found, unsigned *count) {
    SEE(call, seen, instance, 1 << INSTANCE);
    NEED(call, found && count, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    unsigned slices = compute_slices(seen.profile, id);
    NEED(call, slices, NOT_SUPPORTED);
    *count = 0;
    for (unsigned i = 0; i < MAX_COMPUTES; i++) {
        const struct compute *ci = &seen.gi->computes[i];
        if (ci->used && ci->slices == slices)
            found[(*count)++] = make_handle(COMPUTE, seen.number, seen.gi->id, ci->id, ci->serial);
    }
    return leave(&call, OK);
}

API code nvmlComputeInstanceGetInfo_v2(handle compute, struct compute_info *info) {
    SEE(call, seen, compute, 1 << COMPUTE);
    NEED(call, info, INVALID_ARGUMENT);
    NEED(call, privileged(), NO_PERMISSION);
    *info = (struct compute_info){make_handle(DEVICE, seen.number, 0, 0, 0),
                                  instance_handle(&seen),
                                  seen.ci->id,
                                  compute_number(seen.ci->slices),
                                  {seen.ci->start, seen.ci->slices}};
    return leave(&call, OK);
}

/* --- MIG devices: what a process sees; there is one for each compute instance ---------------------------------- */

API code nvmlDeviceIsMigDeviceHandle(handle device, unsigned *answer) {
    SEE(call, seen, device, ANY_DEVICE);
    NEED(call, answer, INVALID_ARGUMENT);
    *answer = seen.ci != NULL;
    return leave(&call, OK);
}

API code nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned *count) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, count, INVALID_ARGUMENT);
    *count = seen.model->slices;
    return leave(&call, OK);
}

API code nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned index, handle *found) {
    SEE(call, seen, device, 1 << DEVICE);
    unsigned position = 0;
    NEED(call, found && index < seen.model->slices, INVALID_ARGUMENT);
    NEED(call, seen.gpu->mig, NOT_SUPPORTED);
    for (unsigned i = 0; i < MAX_INSTANCES * MAX_COMPUTES; i++) {
        const struct instance *gi = &seen.gpu->instances[i / MAX_COMPUTES];
        const struct compute *ci = &gi->computes[i % MAX_COMPUTES];
        if (!gi->used || !ci->used || position++ != index) continue;
        *found = make_handle(MIG_DEVICE, seen.number, gi->id, ci->id, ci->serial);
        return leave(&call, OK);
    }
    return leave(&call, NOT_FOUND);
}

API code nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle device, handle *parent) {
    SEE(call, seen, device, 1 << MIG_DEVICE);
    NEED(call, parent, INVALID_ARGUMENT);
    *parent = make_handle(DEVICE, seen.number, 0, 0, 0);
    return leave(&call, OK);
}

API code nvmlDeviceGetGpuInstanceId(handle device, unsigned *id) {
    SEE(call, seen, device, 1 << MIG_DEVICE);
    NEED(call, id, INVALID_ARGUMENT);
    *id = seen.gi->id;
    return leave(&call, OK);
}

API code nvmlDeviceGetComputeInstanceId(handle device, unsigned *id) {
    SEE(call, seen, device, 1 << MIG_DEVICE);
    NEED(call, id, INVALID_ARGUMENT);
    *id = seen.ci->id;
    return leave(&call, OK);
}

API code nvmlDeviceGetAttributes_v2(handle device, struct attributes *found) {
    SEE(call, seen, device, 1 << MIG_DEVICE);
    NEED(call, found, INVALID_ARGUMENT);
    *found = (struct attributes){.sms = seen.profile->sms * seen.ci->slices / seen.profile->slices,
                                 .gi_slices = seen.profile->slices,
                                 .ci_slices = seen.ci->slices,
                                 .mem_mib = seen.profile->mem_mib};
    return leave(&call, OK);
}

API code nvmlDeviceGetHandleByUUID(const char *uuid, handle *found) {
    ENTER(call);
    NEED(call, uuid && found, INVALID_ARGUMENT);
    for (unsigned g = 0; g < call.world.gpu_count; g++) {
        char text[UUID_LENGTH];
        gpu_uuid(text, g);
        if (strcmp(text, uuid) == 0) {
            *found = make_handle(DEVICE, g, 0, 0, 0);
            return leave(&call, OK);
        }
        for (unsigned i = 0; i < MAX_INSTANCES * MAX_COMPUTES; i++) {
            const struct instance *gi = &call.world.gpus[g].instances[i / MAX_COMPUTES];
            const struct compute *ci = &gi->computes[i % MAX_COMPUTES];
            mig_uuid(text, g, gi->id, ci->id);
            if (!gi->used || !ci->used || strcmp(text, uuid) != 0) continue;
            *found = make_handle(MIG_DEVICE, g, gi->id, ci->id, ci->serial);
            return leave(&call, OK);
        }
    }
    return leave(&call, NOT_FOUND);
}

/* Not NVML: what CUDA does when a process opens a device. The process counts as running on it until it ends. */
API code standinUse(const char *uuid) { return world_use(uuid); }

/* Not NVML: what a process on the device would notice at its next launch of a kernel. */
API int standinHas(const char *uuid) { return world_has(uuid); }
