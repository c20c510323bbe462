#pragma once

/// `lora::Trainer`, and all that training needs.
#include "lora/basic_trainer.hpp"
#ifdef LORA_COMPILED  // by the CMake target lora::compiled
#  include "lora/instantiate.hpp"
#endif
