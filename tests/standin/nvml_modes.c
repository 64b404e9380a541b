/* How a host has its driver and its GPUs: how old the driver is, and in which modes the GPUs are.
 *
 * GPULOOM_STANDIN_DRIVER=535.183.01: so old a driver. Before branch 550 (NVML 12.4) what a GPU can be cut into is told only
 * while MIG is on, as its header has it.
 * GPULOOM_STANDIN_MODES=persistence=1,compute=3,virtual=2: of all GPUs, by NVML's numbers; without it they are not in persistence
 * mode, for any number of processes, and the machine is none that is virtual.
 */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_THAT_TELLS_ALWAYS = 550 };

const char *driver_version(void) {
    const char *told = getenv("GPULOOM_STANDIN_DRIVER");
    return told && *told ? told : "580.65.06";
}

int tells_profiles(const struct seen *seen) {
    return seen->gpu->mig || atoi(driver_version()) >= FIRST_THAT_TELLS_ALWAYS;
}

unsigned mode_named(const char *name, unsigned usual) {
    const char *modes = getenv("GPULOOM_STANDIN_MODES");
    const char *found = modes ? strstr(modes, name) : NULL;
    return found && found[strlen(name)] == '=' ? (unsigned)atoi(found + strlen(name) + 1) : usual;
}

API code nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ENTER(call);
    return leave(&call, put_text(text, size, driver_version()));
}

API code nvmlDeviceGetVirtualizationMode(handle device, unsigned *mode) {
    SEE(call, seen, device, 1 << DEVICE);
    NEED(call, mode, INVALID_ARGUMENT);
    *mode = mode_named("virtual", 0);
    return leave(&call, OK);
}
