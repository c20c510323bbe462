#pragma once

#include "lora/settings/config.hpp"
#include "lora/settings/keys.hpp"

namespace lora::settings {

/// Sets what the file that the key deepspeed names says of keys: ZeRO's stage, offloads, precision, batch, clipping,
/// optimizer, schedule. "auto" is the run's own. Doing so again changes nothing.
/// Throws   ConfigError where a key was given with another value, for a field that would change the run and has no
///          counterpart, and for one that is not known
void apply_deepspeed(Config& config, Command command);

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/deepspeed.ipp"
#endif
