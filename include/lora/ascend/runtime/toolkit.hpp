#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "lora/ascend/runtime/library.hpp"
#include "lora/ascend/runtime/operators.hpp"
#include "lora/ascend/runtime/runtime.hpp"

namespace lora::ascend {

/// The vendor's toolkit as a process has it: opened once, and begun once. It is never ended: devices, and others that
/// use it in the same process, may outlive whoever would.
class Toolkit {
 public:
  Toolkit() : runtime_libraries_(runtime_libraries), operator_libraries_(operator_libraries) {
    if (!runtime_libraries_.any()) {
      problem_ = runtime_libraries_.reason();
      return;
    }
    if (const std::string missing = load(runtime, runtime_libraries_); !missing.empty()) {
      problem_ = concat(runtime_libraries_.names(), " has no function ", missing);
      return;
    }
    const aclError begun = runtime.aclInit(nullptr);
    // Somebody else in the process may have been earlier.
    if (begun != 0 && begun != ACL_ERROR_REPEAT_INITIALIZE) {
      problem_ = concat(runtime_libraries_.names(), " can't begin: ", runtime.describe(begun));
      return;
    }
    runs_ = true;
    operators_found = load_operators(operators, operator_libraries_);
    // An old toolkit, or one that has moved only some of them. A library that is there and can't be opened is reported
    // instead.
    if (lacks_operators() && !operator_libraries_.broken()) {
      operator_libraries_.open(old_operator_library);
      operators_found = load_operators(operators, operator_libraries_);
    }
    if (const std::string missing = load(objects, operator_libraries_); !missing.empty())
      operator_problem_ = operator_libraries_.any() ? concat(operator_libraries_.names(), " has no function ", missing)
                                                    : operator_libraries_.reason();
  }
  Toolkit(const Toolkit&) = delete;
  Toolkit& operator=(const Toolkit&) = delete;

  /// The process's own.
  static Toolkit& get() {
    static Toolkit& toolkit = *new Toolkit();  // not destroyed at exit, when its libraries' threads still run
    return toolkit;
  }

  Runtime runtime;
  Objects objects;
  Operators operators;
  std::vector<OperatorInfo> operators_found;

  /// Whether the runtime is there and has begun; else `problem` says why not.
  bool runs() const { return runs_; }
  const std::string& problem() const { return problem_; }
  /// Whether there is one, which may not run.
  bool there() const { return runtime_libraries_.any() || runtime_libraries_.broken(); }
  /// What may be done where it doesn't run.
  std::string_view advice() const {
    if (problem_.find("libascend_hal.so") != problem_.npos)
      return "the driver's libraries are not found: have lib64/common and lib64/driver of its folder "
             "(/usr/local/Ascend/driver) in LD_LIBRARY_PATH, which set_env.sh of the toolkit does; a container needs "
             "that folder mounted, and its devices";
    return there() ? "install driver and toolkit of one release (CANN 8.1 or newer)"
                   : "install driver and toolkit (CANN) and source its set_env.sh";
  }
  /// Why there are no operators at all; empty: there are.
  const std::string& operator_problem() const { return operator_problem_; }
  const std::string& names() const { return runtime_libraries_.names(); }
  /// Whether somebody would wonder that it can't be used: a library of it is there, or its folder is named.
  bool expected() const { return runtime_libraries_.expected(); }
  const std::string& operator_names() const { return operator_libraries_.names(); }

  /// Operators without which nothing can be trained; empty: all are there, or have something that does their work.
  std::string missing_operators() const {
    constexpr int listed = 4;
    std::string missing;
    int count = 0;
    for (const OperatorInfo& one : operators_found) {
      if (one.there || !one.fallback.empty() || ++count > listed) continue;
      missing += concat(count == 1 ? "" : ", ", one.name, one.left_out ? " (left out by LORA_ASCEND_WITHOUT)" : "");
    }
    return count > listed ? concat(missing, " and ", count - listed, " more") : missing;
  }
  /// What may be done about them.
  std::string operators_advice() const {
    bool any = false;
    for (const OperatorInfo& one : operators_found) any = any || one.there;
    if (!any || operator_libraries_.broken()) return "not opened: " + operator_libraries_.reason();
    return "CANN 8.1 and newer have them";
  }

  /// 0 where they can't be counted.
  std::uint32_t device_count() const {
    std::uint32_t count = 0;
    return runs_ && runtime.aclrtGetDeviceCount(&count) == 0 ? count : 0;
  }
  /// "1.13.0", or nothing.
  std::string version() const {
    std::int32_t major = 0, minor = 0, patch = 0;
    if (!runs_ || runtime.aclrtGetVersion(&major, &minor, &patch) != 0) return {};
    return concat(major, ".", minor, ".", patch);
  }
  /// "8.1.RC1", or nothing where the toolkit doesn't tell.
  std::string package_version() const {
    auto* const ask = runtime_libraries_.find<aclsysGetCANNVersion>("aclsysGetCANNVersion");
    aclCANNPackageVersion found{};
    if (!runs_ || ask == nullptr || ask(ACL_PKG_NAME_CANN, &found) != 0) return {};
    return {found.version, strnlen(found.version, sizeof found.version)};
  }

 private:
  /// Whether there are some that nothing stands in for, and that nobody has left out.
  bool lacks_operators() const {
    return std::any_of(operators_found.begin(), operators_found.end(),
                       [](const OperatorInfo& one) { return !one.there && !one.left_out && one.fallback.empty(); });
  }

  Libraries runtime_libraries_, operator_libraries_;
  std::string problem_, operator_problem_;
  bool runs_ = false;
};

}  // namespace lora::ascend
