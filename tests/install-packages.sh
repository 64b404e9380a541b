#!/bin/sh
# Debian and Ubuntu packages that some tests need: an OpenCL device on the CPU (PoCL) with a loader that knows layers, and
# a browser. Installed where root or sudo allows; what is then still absent is said, and its tests are skipped.
set -u
has_opencl() { ls /etc/OpenCL/vendors/pocl*.icd >/dev/null 2>&1; }
has_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome || command -v chrome; } >/dev/null
packages=""
has_opencl || packages="pocl-opencl-icd ocl-icd-libopencl1"
has_browser || packages="$packages chromium"
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ]; then as=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as="sudo"
else as="none"; fi
if [ "$as" != none ] && command -v apt-get >/dev/null; then
    echo "installing $packages"
    export DEBIAN_FRONTEND=noninteractive
    $as apt-get install -y -qq --no-install-recommends $packages >/dev/null 2>&1 ||
        { $as apt-get update -qq && $as apt-get install -y -qq --no-install-recommends $packages; } >/dev/null 2>&1
fi
has_opencl || echo "no OpenCL device: tests of kernel-level sharing on one are skipped (install pocl-opencl-icd ocl-icd-libopencl1)"
has_browser || echo "no browser: tests of the pages in one are skipped (install chromium)"
exit 0
