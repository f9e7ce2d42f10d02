// All kernels, as one program.
#define POLYLEAF_ISA_NAMESPACE on_device

#include "device/kernels/binning.cu"
#include "device/kernels/channels.cu"
#include "device/kernels/forest.cu"
#include "device/kernels/histograms.cu"
#include "device/kernels/leaves.cu"
#include "device/kernels/losses.cu"
#include "device/kernels/rows.cu"
#include "device/kernels/scan.cu"
