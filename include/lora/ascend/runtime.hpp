#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "lora/ascend/library.hpp"
#include "lora/core/error.hpp"

// What is called of AscendCL, the runtime of the vendor's toolkit (CANN), as its headers declare it in version 8.1.
// They are not needed to build.

namespace lora::ascend {

using AclError = int;  ///< 0 is success
constexpr AclError acl_repeat_initialize = 100002;

enum AclMemory : int { acl_hbm = 1 };                                   ///< aclrtMemAttr
enum AclDeviceInfo : int { acl_cube_cores = 0, acl_vector_cores = 1 };  ///< aclDeviceInfo

/// Functions of the runtime, under the vendor's names.
struct Runtime {
  AclError (*aclInit)(const char* config_path) = nullptr;
  AclError (*aclFinalize)() = nullptr;
  const char* (*aclGetRecentErrMsg)() = nullptr;
  const char* (*aclrtGetSocName)() = nullptr;
  AclError (*aclrtGetVersion)(std::int32_t* major, std::int32_t* minor, std::int32_t* patch) = nullptr;
  AclError (*aclrtGetDeviceCount)(std::uint32_t* count) = nullptr;
  AclError (*aclrtSetDevice)(std::int32_t device) = nullptr;
  AclError (*aclrtResetDevice)(std::int32_t device) = nullptr;
  AclError (*aclrtGetMemInfo)(AclMemory kind, std::size_t* free, std::size_t* total) = nullptr;
  AclError (*aclGetDeviceCapability)(std::uint32_t device, AclDeviceInfo info, std::int64_t* value) = nullptr;

  /// f(name, pointer) for each of them.
  template <class F>
  void for_each(F&& f) {
    f("aclInit", aclInit);
    f("aclFinalize", aclFinalize);
    f("aclGetRecentErrMsg", aclGetRecentErrMsg);
    f("aclrtGetSocName", aclrtGetSocName);
    f("aclrtGetVersion", aclrtGetVersion);
    f("aclrtGetDeviceCount", aclrtGetDeviceCount);
    f("aclrtSetDevice", aclrtSetDevice);
    f("aclrtResetDevice", aclrtResetDevice);
    f("aclrtGetMemInfo", aclrtGetMemInfo);
    f("aclGetDeviceCapability", aclGetDeviceCapability);
  }

  /// "error 107001 (no such device)", with the vendor's own message where it has one.
  std::string describe(AclError error) const {
    const char* message = aclGetRecentErrMsg != nullptr ? aclGetRecentErrMsg() : nullptr;
    return message != nullptr ? concat("error ", error, " (", message, ")") : concat("error ", error);
  }
};

/// Where the runtime is: in version 8's library or in the newer one's.
constexpr std::string_view runtime_libraries[] = {"libascendcl.so", "libacl_rt.so"};

/// Finds the runtime's functions; returns the first that is missing, or nothing.
inline std::string load(Runtime& runtime, const Libraries& libraries) {
  std::string missing;
  runtime.for_each([&](const char* name, auto& function) {
    function = libraries.find<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
    if (function == nullptr && missing.empty()) missing = name;
  });
  return missing;
}

}  // namespace lora::ascend
