#pragma once

/// The whole library, for CPUs.
#include "lora/model/finite.hpp"
#include "lora/model/generate.hpp"
#include "lora/model/merge.hpp"
#include "lora/trainer.hpp"
