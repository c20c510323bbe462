// Products of decoding: as few instructions as can be between what is read from memory.
#include "lora/cpu/kernels/row_product.ipp"
