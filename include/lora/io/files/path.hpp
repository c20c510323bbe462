#pragma once

#include <filesystem>

namespace lora::io {

using Path = std::filesystem::path;

}  // namespace lora::io
