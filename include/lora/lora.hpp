#pragma once

/// The whole library for the processors of one machine.
#include "lora/model/finite.hpp"
#include "lora/model/generate.hpp"
#include "lora/model/merge.hpp"
#include "lora/trainer.hpp"
