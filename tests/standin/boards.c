/* What the GPU models are beside how they can be cut: the figures on their data sheets and in lists of PCI ids. */
#include "nvml.h"

#include <string.h>

/* Architectures by NVML's numbers: 6 Turing, 7 Ampere, 9 Hopper, 10 Blackwell. */
static const struct board BOARDS[] = {
    {"A100-40GB", 0x20B010DE, 65536, 8, 0, 7, ROW_REMAPPING},
    {"A100-80GB", 0x20B210DE, 131072, 8, 0, 7, ROW_REMAPPING},
    {"A30-24GB", 0x20B710DE, 32768, 8, 0, 7, ROW_REMAPPING},
    {"H100-SXM-80GB", 0x233010DE, 131072, 9, 0, 9, ROW_REMAPPING},
    {"H100-PCIe-80GB", 0x233110DE, 131072, 9, 0, 9, ROW_REMAPPING},
    {"H200-141GB", 0x233510DE, 262144, 9, 0, 9, ROW_REMAPPING},
    {"RTX-PRO-6000-96GB", 0x2BB510DE, 131072, 12, 0, 10, ROW_REMAPPING},
    {"T4-16GB", 0x1EB810DE, 256, 7, 5, 6, PAGE_RETIREMENT},
    {"unknown-mig", 0x7FFF10DE, 0, 8, 0, 7, ROW_REMAPPING}, /* nobody's number */
};
static const struct board UNKNOWN_BOARD = {"", 0x7FFE10DE, 0, 0, 0, 0, NO_ECC};

const struct board *board_of(const struct model *model) {
    const struct board *found = &UNKNOWN_BOARD;
    for (unsigned i = 0; i < sizeof BOARDS / sizeof BOARDS[0]; i++)
        if (strcmp(BOARDS[i].model, model->name) == 0) found = &BOARDS[i];
    return replayed_board(model, found);
}
