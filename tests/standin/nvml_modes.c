/* What a host makes of its GPUs: how old the driver is, and whether the machine is a virtual one.
 *
 * GPULOOM_STANDIN_DRIVER=535.183.01: so old a driver. Before branch 550 (NVML 12.4) what a GPU can be cut into is told only
 * while MIG is on, as its header has it.
 * GPULOOM_STANDIN_VIRTUAL=2: NVML's number of the virtualization mode of all GPUs; without it there is none.
 */
#include "nvml.h"

#include <stdlib.h>

enum { FIRST_THAT_TELLS_ALWAYS = 550 };

const char *driver_version(void) {
    const char *told = getenv("GPULOOM_STANDIN_DRIVER");
    return told && *told ? told : "580.65.06";
}

int tells_profiles(const struct seen *seen) {
    return seen->gpu->mig || atoi(driver_version()) >= FIRST_THAT_TELLS_ALWAYS;
}

API code nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ENTER(call);
    return leave(&call, put_text(text, size, driver_version()));
}

API code nvmlDeviceGetVirtualizationMode(handle device, unsigned *mode) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, mode, INVALID_ARGUMENT);
    const char *told = getenv("GPULOOM_STANDIN_VIRTUAL");
    *mode = told ? (unsigned)atoi(told) : 0;
    return leave(&call, OK);
}
