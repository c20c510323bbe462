#pragma once

/// The whole library, for CPUs.
#include "lora/decode/generate.hpp"
#include "lora/model/decoder/finite.hpp"
#include "lora/model/export/merge.hpp"
#include "lora/trainer.hpp"
