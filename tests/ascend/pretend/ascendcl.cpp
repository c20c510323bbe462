// The runtime: says what the environment has it say.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

/// A number of the environment.
int told(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

int current = -1;
const char* message = nullptr;

}  // namespace

extern "C" {

int aclInit(const char*) {
  const int error = told("PRETEND_ASCEND_INIT", 0);
  message = error != 0 && error != 100002 ? "the driver does not answer" : nullptr;
  return error;
}
int aclFinalize() { return 0; }
const char* aclGetRecentErrMsg() {
  const char* last = message;
  message = nullptr;  // told once
  return last;
}
const char* aclrtGetSocName() { return "Ascend910B3"; }
int aclrtGetVersion(std::int32_t* major, std::int32_t* minor, std::int32_t* patch) {
  *major = 1;
  *minor = 13;
  *patch = 0;
  return 0;
}
int aclrtGetDeviceCount(std::uint32_t* count) {
  const int devices = told("PRETEND_ASCEND_DEVICES", 2);
  *count = devices < 0 ? 0u : static_cast<std::uint32_t>(devices);
  return devices < 0 ? 507899 : 0;
}
int aclrtSetDevice(std::int32_t device) {
  if (device == told("PRETEND_ASCEND_BROKEN", -1)) {
    message = "the device is lost";
    return 107001;
  }
  current = device;
  return 0;
}
int aclrtResetDevice(std::int32_t) {
  current = -1;
  return 0;
}
int aclrtGetMemInfo(int kind, std::size_t* free, std::size_t* total) {
  if (current < 0) return 107002;
  if (kind != 1) return 107000;
  *free = (std::size_t{60} << 30) + (std::size_t{1} << 29);
  *total = std::size_t{64} << 30;
  return 0;
}
int aclGetDeviceCapability(std::uint32_t, int info, std::int64_t* value) {
  if (info != 0 && info != 1) return 100000;
  *value = info == 0 ? 20 : 40;
  return 0;
}
}
