// All kernels as one program.
#define POLYLEAF_ISA_NAMESPACE on_device

#include "device/kernels/binning_device.cu"
#include "device/kernels/forest_device.cu"
#include "device/kernels/histograms_device.cu"
#include "device/kernels/leaves_device.cu"
#include "device/kernels/losses_device.cu"
#include "device/kernels/partition_device.cu"
#include "device/kernels/quantise_device.cu"
#include "device/kernels/scan_device.cu"
