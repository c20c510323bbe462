#pragma once

// What most tests include, parsed once for all of them where the compiler is clang (tests/CMakeLists.txt). A test
// includes what it needs all the same: with g++ each of its headers is read.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <complex>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "lora/lora.hpp"
#include "support/effort.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"
#include "support/workshop.hpp"
