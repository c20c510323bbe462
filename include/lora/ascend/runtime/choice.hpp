#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lora/ascend/runtime/device.hpp"
#include "lora/core/environment.hpp"
#include "lora/core/log.hpp"

namespace lora::ascend {

namespace detail {

inline std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace detail

/// Whether a name such as Ascend910B3 is of a kind: it is one, or a family of them, as Ascend910B is, whose members
/// have a number more. Letters may be of any case.
inline bool is_of_kind(std::string_view name, std::string_view kind) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const std::string whole = detail::lower(name), begin = detail::lower(kind);
  if (whole == begin) return true;
  return whole.starts_with(begin) && std::any_of(begin.begin(), begin.end(), is_digit) && !is_digit(begin.back()) &&
         is_digit(whole[begin.size()]);
}

/// The NPU of this process, of those that `ids` names, or all if it names none: that of the launcher's local rank, or
/// the first. Throws   ConfigError where a launcher names one that is not there
inline DeviceSettings chosen_of(std::span<const int> ids, const Toolkit& toolkit) {
  const auto rank = local_rank();
  if (ids.size() == 1) return {.id = ids.front()};
  if (ids.empty()) {
    const std::uint32_t count = toolkit.device_count();
    if (rank && count > 0 && static_cast<std::uint32_t>(rank->number) >= count)
      fail<ConfigError>("the environment's ", rank->variable, " is ", rank->number, ", but the runtime counts ", count,
                        " NPUs; expected one for each process");
    return {.id = rank ? rank->number : 0};
  }
  if (!rank)
    fail<ConfigError>("key device: given ", ids.size(),
                      " NPUs, one for each process, but no launcher has set LOCAL_RANK, ",
                      "which picks one; allowed: one NPU, such as ascend:", ids.front());
  const auto index = static_cast<std::size_t>(rank->number);
  if (index >= ids.size())
    fail<ConfigError>("key device: given ", ids.size(), " NPUs, but ", rank->variable, " is ", index,
                      "; expected one for each process");
  return {.id = ids[index]};
}

/// Why the NPUs here are not of the kind that the key device_type names; empty where they are, or where it is auto.
inline std::string wrong_kind(std::string_view type, const Toolkit& toolkit) {
  const char* const name = toolkit.runtime.aclrtGetSocName();
  if (type == "auto" || (name != nullptr && is_of_kind(name, type))) return {};
  return concat("key device_type: given ", type, ", but the NPUs here ",
                name != nullptr ? concat("are ", name) : "don't tell their kind");
}

/// The NPU to use, as the key device says; with `any`, nothing where there is none that can be used. `type`: the kind
/// that it must be, or auto. Throws   DeviceError if a kind is asked for that is not there, ConfigError as above
inline std::optional<DeviceSettings> choose(std::span<const int> ids, bool any, std::string_view type,
                                            const Toolkit& toolkit = Toolkit::get()) {
  const std::string missing = toolkit.missing_operators();
  const bool usable =
      toolkit.runs() && toolkit.device_count() > 0 && toolkit.operator_problem().empty() && missing.empty();
  if (any && !usable) {
    const std::string why = toolkit.names().empty()
                                ? "no Ascend toolkit can be opened: " + toolkit.problem()
                                : concat("there is an Ascend toolkit, but ",
                                         !toolkit.runs()               ? "it can't be used: " + toolkit.problem()
                                         : toolkit.device_count() == 0 ? "no NPU"
                                         : !toolkit.operator_problem().empty() ? "its operators can't be used"
                                                                               : "it lacks operators: " + missing);
    if (type != "auto") fail<DeviceError>("key device_type: given ", type, ", but ", why);
    // Who has a toolkit expects to train with it.
    if (toolkit.expected()) log::warn("device auto: ", why, "; computing on the CPU ('lora doctor' tells more)");
    return std::nullopt;
  }
  const DeviceSettings chosen = chosen_of(ids, toolkit);
  if (!toolkit.runs()) return chosen;  // which is refused when it is opened
  if (const std::string wrong = wrong_kind(type, toolkit); !wrong.empty()) fail<DeviceError>(wrong);
  return chosen;
}

}  // namespace lora::ascend
