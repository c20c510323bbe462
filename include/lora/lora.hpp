#pragma once

/// The whole library, for CPUs.
#include "lora/decode/generate.hpp"
#include "lora/model/finite.hpp"
#include "lora/model/merge.hpp"
#include "lora/trainer.hpp"
