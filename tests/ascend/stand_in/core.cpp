#include "core.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace stand_in {

namespace {

thread_local std::string text_of_failure;
thread_local std::string text_handed_out;
thread_local int code_of_failure = 0;
thread_local Context* current = nullptr;

/// Whoever takes no faults is told of them when the program ends.
struct Farewell {
  ~Farewell() {
    if (Core::get().settings.check_leaks != 0) Core::get().report_leaks();
    std::string text(1 << 16, '\0');
    const std::size_t count = Core::get().take_faults(text.data(), text.size());
    if (count > 0) std::fprintf(stderr, "stand-in: %zu breaches of the interface\n%s", count, text.c_str());
  }
};
const Farewell farewell;

}  // namespace

Core& Core::get() {
  static Core& core = *new Core;  // streams may still run when the program ends
  return core;
}

Core::Core() {
#define STAND_IN_READ(name, value)                                                          \
  {                                                                                         \
    std::string variable = "STAND_IN_";                                                     \
    for (const char c : std::string(#name))                                                 \
      variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));           \
    if (const char* text = std::getenv(variable.c_str()); text != nullptr && *text != '\0') \
      settings.name = std::strtoll(text, nullptr, 0);                                       \
  }
  STAND_IN_SETTINGS(STAND_IN_READ)
#undef STAND_IN_READ
}

int Core::failure(int code, const std::string& text) {
  code_of_failure = code;
  text_of_failure = "E" + std::to_string(code) + ": " + text;
  return code;
}

int Core::last_code(bool forget) {
  const int code = code_of_failure;
  if (forget) code_of_failure = 0;
  return code;
}

const char* Core::last_text() {
  if (text_of_failure.empty()) return nullptr;
  text_handed_out = std::move(text_of_failure);
  text_of_failure.clear();
  return text_handed_out.c_str();
}

void Core::note(const std::string& text) {
  ++fault_count_;
  if (settings.verbose != 0) std::fprintf(stderr, "stand-in: %s\n", text.c_str());
  if (faults_.size() < 200) faults_.push_back(text);
}

void Core::fault(const std::string& text) {
  const Lock lock(mutex);
  note(text);
}

std::size_t Core::take_faults(char* text, std::size_t size) {
  const Lock lock(mutex);
  if (text != nullptr && size > 0) {
    std::string lines;
    for (const std::string& line : faults_) lines += line + "\n";
    const std::size_t length = std::min(lines.size(), size - 1);
    std::memcpy(text, lines.data(), length);
    text[length] = '\0';
  }
  faults_.clear();
  return std::exchange(fault_count_, 0);
}

std::int64_t Core::setting(const char* name) {
  const std::atomic<std::int64_t>* found = settings.find(name);
  return found != nullptr ? found->load() : 0;
}

// Starting and ending

bool Core::initialized() {
  const Lock lock(mutex);
  return initialized_;
}

namespace {

struct Range {
  std::atomic<Address> from{0};
  std::atomic<Address> to{0};
};
Range forbidden[256];
struct sigaction before;
bool watching = false;

/// Says what happened before the program dies as it would without it.
void on_violation(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<Address>(info->si_addr);
  for (const Range& range : forbidden) {
    if (address < range.from.load() || address >= range.to.load()) continue;
    static const char text[] = "stand-in: host code touched device memory\n";
    [[maybe_unused]] const auto written = ::write(2, text, sizeof text - 1);
    break;
  }
  ::sigaction(signal, &before, nullptr);  // returning runs into it again
}

}  // namespace

void forbid(Address from, Address to) {
  for (Range& range : forbidden) {
    if (range.to.load() != 0) continue;
    range.from = from;
    range.to = to;
    return;
  }
}

void allow(Address from) {
  for (Range& range : forbidden)
    if (range.to.load() != 0 && range.from.load() == from) range.to = 0;
}

int Core::init() {
  const Lock lock(mutex);
  if (settings.init_error != 0)
    return failure(static_cast<int>(settings.init_error), "aclInit: the driver does not answer");
  if (initialized_) return failure(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: called before");
  dry_ = settings.dry != 0;
  devices_.clear();
  std::vector<int> visible;
  const auto physical = static_cast<int>(std::max<std::int64_t>(settings.devices, 0));
  if (const char* list = std::getenv("ASCEND_RT_VISIBLE_DEVICES"); list != nullptr) {
    // What does not rise, or is no device, ends the list.
    int last = -1;
    for (const char* at = list; *at != '\0';) {
      char* end = nullptr;
      const long id = std::strtol(at, &end, 10);
      if (end == at || id <= last || id >= physical) break;
      visible.push_back(last = static_cast<int>(id));
      at = *end == ',' ? end + 1 : end;
      if (*end != ',') break;
    }
    devices_.resize(visible.size());
  } else {
    devices_.resize(static_cast<std::size_t>(physical));
  }
  if (!watching) {
    struct sigaction action = {};
    action.sa_sigaction = on_violation;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    watching = ::sigaction(SIGSEGV, &action, &before) == 0;
  }
  initialized_ = true;
  finalized_ = false;
  return 0;
}

int Core::finalize() {
  Lock lock(mutex);
  if (!initialized_) {
    if (finalized_) return failure(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize: called before");
    return failure(ACL_ERROR_UNINITIALIZE, "aclFinalize: without aclInit");
  }
  std::vector<std::string> lines;
  leaks(lines);
  for (const std::string& line : lines) note("at aclFinalize: " + line);
  for (Context* context : std::set<Context*>(contexts_)) stop_context(*context, false, lock);
  for (Device& one : devices_) {
    if (one.primary != nullptr) {
      contexts_.erase(one.primary.get());
      bury(std::move(one.primary));
    }
    drop_device(one);
  }
  for (Context* left : contexts_) {
    objects_.erase({static_cast<int>(Kind::context), left});
    bury(std::unique_ptr<Context>(left));
  }
  contexts_.clear();
  std::erase_if(live_, [](const auto& entry) { return entry.second.device >= 0; });
  for (const auto& one : reservations_) {
    allow(one->base);
    unmap_memory(one->base, one->size);
    if (one->inside != nullptr) unmap_memory(reinterpret_cast<Address>(one->inside), one->size);
  }
  reservations_.clear();
  physical_.clear();
  devices_.clear();
  current = nullptr;
  initialized_ = false;
  finalized_ = true;
  if (watching) {
    // Only where nobody came after.
    struct sigaction now = {};
    if (::sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_sigaction == on_violation)
      ::sigaction(SIGSEGV, &before, nullptr);
    watching = false;
  }
  return 0;
}

void Core::leaks(std::vector<std::string>& lines) {
  std::size_t device_count = 0, device_bytes = 0, host_count = 0, host_bytes = 0;
  for (const auto& [base, one] : live_) {
    (one.device >= 0 ? device_count : host_count) += 1;
    (one.device >= 0 ? device_bytes : host_bytes) += one.size;
  }
  const auto tell = [&](const std::string& text, std::size_t count) {
    if (count > 0) lines.push_back(text + " " + std::to_string(count));
  };
  if (device_count > 0)
    lines.push_back("device memory is left: " + std::to_string(device_count) + " pieces, " +
                    std::to_string(device_bytes) + " bytes");
  if (host_count > 0)
    lines.push_back("host memory is left: " + std::to_string(host_count) + " pieces, " + std::to_string(host_bytes) +
                    " bytes");
  tell("physical memory is left:", physical_.size());
  tell("reserved addresses are left:", reservations_.size());
  static const char* const names[] = {"tensors",         "scalars",          "arrays of integers", "arrays of floats",
                                      "arrays of bools", "lists of tensors", "lists of scalars",   "executors",
                                      "streams",         "events",           "contexts",           "communicators"};
  std::map<int, std::size_t> kinds;
  for (const auto& entry : objects_) ++kinds[entry.first.first];
  for (const auto& [kind, count] : kinds) tell(std::string(names[kind]) + " are left:", count);
}

void Core::report_leaks() {
  const Lock lock(mutex);
  std::vector<std::string> lines;
  leaks(lines);
  for (const std::string& line : lines) note(line);
}

// Objects

void Core::bury(std::shared_ptr<void> object) {
  buried_.push_back(std::move(object));
  if (buried_.size() > 64) buried_.pop_front();
}

void Core::made(Kind kind, const void* object) {
  const Lock lock(mutex);
  objects_[{static_cast<int>(kind), object}] = true;
}
bool Core::gone(Kind kind, const void* object) {
  const Lock lock(mutex);
  return objects_.erase({static_cast<int>(kind), object}) != 0;
}
bool Core::lives(Kind kind, const void* object) {
  const Lock lock(mutex);
  return objects_.count({static_cast<int>(kind), object}) != 0;
}

// Devices and contexts

int Core::usable(const char* caller, const Context* context) {
  const std::string name = caller;
  if (!initialized_) return failure(ACL_ERROR_UNINITIALIZE, name + ": aclInit was not called");
  if (context == nullptr || contexts_.count(const_cast<Context*>(context)) == 0)
    return failure(ACL_ERROR_RT_CONTEXT_NULL, name + ": this thread has no device (aclrtSetDevice)");
  if (devices_[static_cast<std::size_t>(context->device)].lost)
    return failure(ACL_ERROR_RT_DRV_INTERNAL_ERROR, name + ": the device is lost");
  if (context->error != 0) return failure(context->error, name + ": the context is unusable since work on it failed");
  return 0;
}

int Core::ready(const char* caller) {
  const Lock lock(mutex);
  return usable(caller, current);
}

Context* Core::thread_context() const { return current; }

bool Core::fixed_order() {
  const Lock lock(mutex);
  const bool of_context =
      current != nullptr && contexts_.count(current) != 0 && current->options[ACL_OPT_DETERMINISTIC] != 0;
  const bool of_process = options[ACL_OPT_DETERMINISTIC] != 0;
  switch (settings.order_of_sums) {
    case 1:
      return of_context;
    case 2:
      return of_process;
    case 3:
      return of_context && of_process;
    default:
      return true;
  }
}

void Core::opened(const char* library) {
  const Lock lock(mutex);
  libraries_.insert(library);
}

std::string Core::mixed() {
  const Lock lock(mutex);
  if (libraries_.size() < 2 || libraries_.count("libopapi.so") == 0) return {};
  std::string others;
  for (const std::string& one : libraries_)
    if (one != "libopapi.so") others += (others.empty() ? "" : ", ") + one;
  return "libopapi.so is open together with " + others;
}

Context* Core::context() {
  const Lock lock(mutex);
  return current != nullptr && contexts_.count(current) != 0 ? current : nullptr;
}

int Core::device() {
  const Context* one = context();
  return one != nullptr ? one->device : -1;
}

bool Core::lost(int id) {
  const Lock lock(mutex);
  return devices_[static_cast<std::size_t>(id)].lost;
}

void Core::set_overflow_mode(int mode) {
  const Lock lock(mutex);
  devices_[static_cast<std::size_t>(current->device)].overflow_mode = mode;
}

int Core::overflow_mode() {
  const Lock lock(mutex);
  return devices_[static_cast<std::size_t>(current->device)].overflow_mode;
}

int Core::set_device(int id) {
  const Lock lock(mutex);
  if (!initialized_) return failure(ACL_ERROR_UNINITIALIZE, "aclrtSetDevice: aclInit was not called");
  if (id < 0 || id >= static_cast<int>(devices_.size()))
    return failure(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtSetDevice: no device " + std::to_string(id));
  if (settings.set_device_error == id)
    return failure(ACL_ERROR_RT_DRV_INTERNAL_ERROR, "aclrtSetDevice: device " + std::to_string(id) + " does not start");
  Device& one = prepare_device(id);
  if (one.lost) return failure(ACL_ERROR_RT_DRV_INTERNAL_ERROR, "aclrtSetDevice: the device is lost");
  if (one.primary == nullptr) {
    one.primary = std::make_unique<Context>();
    one.primary->device = id;
    one.primary->primary = true;
    contexts_.insert(one.primary.get());
  }
  ++one.references;
  current = one.primary.get();
  return 0;
}

int Core::reset_device(int id, bool force) {
  Lock lock(mutex);
  if (!initialized_) return failure(ACL_ERROR_UNINITIALIZE, "aclrtResetDevice: aclInit was not called");
  if (id < 0 || id >= static_cast<int>(devices_.size()))
    return failure(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtResetDevice: no device " + std::to_string(id));
  Device& one = devices_[static_cast<std::size_t>(id)];
  if (one.references == 0) return failure(ACL_ERROR_RT_CONTEXT_NULL, "aclrtResetDevice: the device was not set");
  one.references = force ? 0 : one.references - 1;
  if (one.references == 0 && one.primary != nullptr) {
    if (!force && !one.primary->streams.empty())
      note("aclrtResetDevice: " + std::to_string(one.primary->streams.size()) + " streams are left");
    stop_context(*one.primary, force || one.lost, lock);
    if (current == one.primary.get()) current = nullptr;
    contexts_.erase(one.primary.get());
    bury(std::move(one.primary));
    one.lost = false;
    one.overflow_mode = 0;
    release_device(id, force ? nullptr : "aclrtResetDevice");
  }
  return 0;
}

int Core::create_context(aclrtContext* out, int id) {
  const Lock lock(mutex);
  if (!initialized_) return failure(ACL_ERROR_UNINITIALIZE, "aclrtCreateContext: aclInit was not called");
  if (out == nullptr) return failure(ACL_ERROR_RT_PARAM_INVALID, "aclrtCreateContext: null");
  if (id < 0 || id >= static_cast<int>(devices_.size()))
    return failure(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtCreateContext: no device " + std::to_string(id));
  prepare_device(id);
  auto* one = new Context;
  one->device = id;
  contexts_.insert(one);
  objects_[{static_cast<int>(Kind::context), one}] = true;
  *out = current = one;
  return 0;
}

int Core::destroy_context(aclrtContext out) {
  Lock lock(mutex);
  auto* one = static_cast<Context*>(out);
  if (one == nullptr || contexts_.count(one) == 0 || one->primary)
    return failure(ACL_ERROR_RT_INVALID_HANDLE, "aclrtDestroyContext: no context that aclrtCreateContext made");
  stop_context(*one, false, lock);
  contexts_.erase(one);
  objects_.erase({static_cast<int>(Kind::context), one});
  if (current == one) current = nullptr;
  bury(std::unique_ptr<Context>(one));
  return 0;
}

int Core::set_context(aclrtContext out) {
  const Lock lock(mutex);
  auto* one = static_cast<Context*>(out);
  if (one == nullptr || contexts_.count(one) == 0)
    return failure(ACL_ERROR_RT_INVALID_HANDLE, "aclrtSetCurrentContext: no such context");
  current = one;
  return 0;
}

void Core::stop_context(Context& context, bool force, Lock& lock) {
  for (Stream* stream : std::set<Stream*>(context.streams)) {
    stop_stream(*stream, force, lock);
    objects_.erase({static_cast<int>(Kind::stream), stream});
    remove_stream(stream);
  }
  context.streams.clear();
  if (context.standard != nullptr) {
    stop_stream(*context.standard, force, lock);
    remove_stream(context.standard);
    context.standard = nullptr;
  }
}

}  // namespace stand_in

extern "C" stand_in::Engine* standInEngine(void) { return &stand_in::Core::get(); }
