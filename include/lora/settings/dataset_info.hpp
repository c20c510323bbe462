#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/data/records/data_file.hpp"
#include "lora/data/records/record_list.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/keys.hpp"
#include "lora/settings/stage_lists.hpp"
#include "lora/settings/unknown_key.hpp"
#include "lora/settings/value_text.hpp"

// Data sets by names: LLaMA-Factory's dataset_info.json says which file a name means, and what its records' fields are
// called.

namespace lora::settings {

/// Replaces names in dataset and eval_dataset by the files that dataset_info.json of dataset_dir has for them, or that
/// of the folder in a name with one (data/identity); D#200 by 200 records of D, instead of its num_samples. A path of a
/// file stays, and names of `lists` do. Where there are names, max_samples is of each file, as in LLaMA-Factory. Once
/// more, it does nothing.
/// Returns  which names were found, as a sentence to log; empty where there was none
/// Throws   ConfigError for a name that the file has not, or that is a file as well, and for a word that is no file
///          where there is none; FormatError for what can't be read by it; IoError
std::string find_datasets(Config& config, Command command, const data::RecordLists& lists = {});

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/dataset_info.ipp"
#endif
