/// The stand-in for the vendor's libraries: that it has the vendor's interface, keeps its rules and reports who breaks
/// them.
#include "ascend/stand_in/stand_in.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <elf.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ascend/stand_in/vendor.h"
#include "ascend/stand_in/vendor_more.h"
#include "support/environment.hpp"
#include "support/process.hpp"
#include "support/temp_folder.hpp"

namespace stand_in_test {
namespace {

using Floats = std::vector<float>;

/// The lines of all faults since the last call.
std::string faults() {
  std::string text(20000, '\0');
  standInTakeFaults(text.data(), text.size());
  text.resize(std::strlen(text.c_str()));
  return text;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// A setting for a while.
class Setting {
 public:
  Setting(const char* name, std::int64_t value, std::int64_t before = -1) : name_(name), before_(before) {
    REQUIRE(standInSet(name, value) == 0);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { standInSet(name_, before_); }

 private:
  const char* name_;
  std::int64_t before_;
};

/// A device with a stream, from the start of the library to its end.
class Card {
 public:
  Card() {
    faults();
    REQUIRE(aclInit(nullptr) == 0);
    REQUIRE(aclrtSetDevice(0) == 0);
    REQUIRE(aclrtCreateStream(&stream) == 0);
  }
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;
  ~Card() {
    for (void* one : memory_) aclrtFree(one);
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
    CHECK(aclFinalize() == 0);
    CHECK(faults() == "");
  }

  void* allocate(std::size_t bytes) {
    void* pointer = nullptr;
    REQUIRE(aclrtMalloc(&pointer, bytes, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
    memory_.push_back(pointer);
    return pointer;
  }
  void release(void* pointer) {
    std::erase(memory_, pointer);
    CHECK(aclrtFree(pointer) == 0);
  }
  /// Device memory that others free.
  void forget(void* pointer) { std::erase(memory_, pointer); }
  void* floats(const Floats& values) {
    void* pointer = allocate(values.size() * 4);
    REQUIRE(aclrtMemcpy(pointer, values.size() * 4, values.data(), values.size() * 4, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
    return pointer;
  }
  Floats read(const void* pointer, std::size_t count) {
    Floats values(count);
    REQUIRE(aclrtSynchronizeStream(stream) == 0);
    REQUIRE(aclrtMemcpy(values.data(), count * 4, pointer, count * 4, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
    return values;
  }

  aclrtStream stream = nullptr;

 private:
  std::vector<void*> memory_;
};

using Dims = std::vector<std::int64_t>;

/// A tensor description for as long as it lives.
class Tensor {
 public:
  Tensor(void* data, const Dims& shape, aclDataType type = ACL_FLOAT, std::int64_t offset = 0, Dims strides = {}) {
    if (strides.empty()) {
      strides.assign(shape.size(), 1);
      for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    }
    std::int64_t stored = offset + 1;
    for (std::size_t i = 0; i < shape.size(); ++i) stored += (shape[i] - 1) * strides[i];
    tensor_ =
        aclCreateTensor(shape.data(), shape.size(), type, strides.data(), offset, ACL_FORMAT_ND, &stored, 1, data);
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { aclDestroyTensor(tensor_); }
  operator aclTensor*() const { return tensor_; }

 private:
  aclTensor* tensor_;
};

class Scalar {
 public:
  explicit Scalar(float value) : scalar_(aclCreateScalar(&value, ACL_FLOAT)) {}
  Scalar(const Scalar&) = delete;
  Scalar& operator=(const Scalar&) = delete;
  ~Scalar() { aclDestroyScalar(scalar_); }
  operator aclScalar*() const { return scalar_; }

 private:
  aclScalar* scalar_;
};

/// out = a + b of `count` floats, queued; what the first phase that fails returns.
int add(Card& card, void* a, void* b, void* out, std::int64_t count, aclrtStream stream) {
  const Tensor x(a, {count}), y(b, {count}), z(out, {count});
  const Scalar one(1);
  std::uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  if (const int code = aclnnAddGetWorkspaceSize(x, y, one, z, &workspace, &executor); code != 0) return code;
  return aclnnAdd(workspace > 0 ? card.allocate(workspace) : nullptr, workspace, executor, stream);
}

StandInCounts counts() {
  StandInCounts now{};
  standInCounts(&now);
  return now;
}

// The interface

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string trimmed(const std::string& text) {
  const auto from = text.find_first_not_of(' '), to = text.find_last_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

/// A type without spaces around stars, and under one of its names.
std::string plain(const std::string& written) {
  std::string type;
  for (const char c : trimmed(written)) {
    if (c == '*' && !type.empty() && type.back() == ' ') type.pop_back();
    if (c != ' ' || (!type.empty() && type.back() != '*')) type += c;
  }
  // `const` of a value says nothing to a caller.
  if (!has(type, "*") && type.rfind("const ", 0) == 0) type.erase(0, 6);
  if (type == "size_t") return "unsigned long";
  if (type == "aclFloat16") return "unsigned short";
  return type;
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// What comes before the name at the end.
std::string without_name(std::string text) {
  while (!text.empty() && is_name(text.back())) text.pop_back();
  return text;
}

/// A header without comments and lines of the preprocessor.
std::string code_of(const std::string& header) {
  std::string code;
  bool comment = false;
  std::istringstream lines(header);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind('#', 0) == 0 || line.rfind("extern", 0) == 0) continue;
    for (std::size_t at = 0; at < line.size();) {
      const bool border = line.compare(at, 2, comment ? "*/" : "/*") == 0;
      if (border) comment = !comment;
      if (!border && !comment) code += line[at];
      at += border ? 2 : 1;
    }
    code += ' ';
  }
  return code;
}

using Signatures = std::map<std::string, std::vector<std::string>>;

/// Functions of a header: result and types of the parameters.
void declared(const std::string& header, Signatures& all) {
  std::istringstream statements(code_of(header));
  for (std::string one; std::getline(statements, one, ';');) {
    const auto open = one.find('('), close = one.rfind(')');
    if (open == std::string::npos || has(one, "(*")) continue;
    const std::string result = without_name(one.substr(0, open));
    std::vector<std::string>& types = all[one.substr(result.size(), open - result.size())];
    types.push_back(plain(result));
    std::istringstream parameters(one.substr(open + 1, close - open - 1));
    for (std::string parameter; std::getline(parameters, parameter, ',');)
      if (parameter != "void") types.push_back(plain(without_name(trimmed(parameter))));
  }
}

Signatures vendor_functions() {
  Signatures all;
  const std::filesystem::path folder = std::filesystem::path(LORA_FIXTURES) / "../ascend/stand_in";
  declared(text_of(folder / "vendor.h"), all);
  declared(text_of(folder / "vendor_more.h"), all);
  return all;
}

Signatures extract() {
  Signatures all;
  std::istringstream lines(text_of(std::filesystem::path(LORA_FIXTURES) / "ascend_abi.tsv"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    std::getline(fields, name, '\t');
    for (std::string field; std::getline(fields, field, '\t');) all[name].push_back(plain(field));
  }
  return all;
}

/// What a library exports.
std::set<std::string> exported(const std::filesystem::path& path) {
  const std::string file = text_of(path);
  const auto at = [&file](std::size_t offset, auto value) {
    std::memcpy(&value, file.data() + offset, sizeof value);
    return value;
  };
  const auto head = at(0, Elf64_Ehdr{});
  std::set<std::string> names;
  for (std::size_t i = 0; i < head.e_shnum; ++i) {
    const auto section = at(head.e_shoff + i * head.e_shentsize, Elf64_Shdr{});
    if (section.sh_type != SHT_DYNSYM) continue;
    const auto texts = at(head.e_shoff + section.sh_link * head.e_shentsize, Elf64_Shdr{});
    for (std::size_t offset = 0; offset < section.sh_size; offset += section.sh_entsize) {
      const auto symbol = at(section.sh_offset + offset, Elf64_Sym{});
      if (symbol.st_shndx != SHN_UNDEF && symbol.st_name != 0)
        names.insert(file.c_str() + texts.sh_offset + symbol.st_name);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("ascend stand-in: its functions have the types of the vendor's headers") {
  const Signatures known = extract(), functions = vendor_functions();
  REQUIRE(functions.size() > 300);
  // Of operators that came after the headers there are documents alone.
  const std::set<std::string> later = {"RotaryPositionEmbedding", "RotaryPositionEmbeddingGrad",
                                       "ForeachNonFiniteCheckAndUnscale", "ApplyRotaryPosEmbV2", "FusedAdamw"};
  for (const auto& one : functions) {
    const std::string& name = one.first;
    const std::vector<std::string>& types = one.second;
    CAPTURE(name);
    std::string short_name = name;
    for (const char* part : {"aclnn", "GetWorkspaceSize"})
      if (const auto found = short_name.find(part); found != std::string::npos)
        short_name.erase(found, std::strlen(part));
    if (later.count(short_name) != 0) continue;
    REQUIRE(known.count(name) != 0);
    CHECK(types == known.at(name));
  }
}

TEST_CASE("ascend stand-in: its constants and structures are the vendor's") {
  const Signatures known = extract();
  const std::string header = text_of(std::filesystem::path(LORA_FIXTURES) / "../ascend/stand_in/vendor.h");
  std::size_t count = 0;
  for (std::size_t at = 0; (at = header.find(" = ", at)) != std::string::npos; at += 3) {
    std::size_t from = at;
    while (from > 0 && is_name(header[from - 1])) --from;
    const std::string name = header.substr(from, at - from);
    if (known.count(name) == 0) continue;  // those of macros are not among what a compiler tells
    CAPTURE(name);
    CHECK(std::stoll(header.substr(at + 3, 12), nullptr, 0) == std::stoll(known.at(name).at(0)));
    ++count;
  }
  CHECK(count > 100);
  const std::map<std::string, std::size_t> sizes = {
      {"HcclCommConfig", sizeof(HcclCommConfig)},        {"HcclRootInfo", sizeof(HcclRootInfo)},
      {"HcclSendRecvItem", sizeof(HcclSendRecvItem)},    {"aclCANNPackageVersion", sizeof(aclCANNPackageVersion)},
      {"aclrtMemLocation", sizeof(aclrtMemLocation)},    {"aclrtPhysicalMemProp", sizeof(aclrtPhysicalMemProp)},
      {"aclrtPtrAttributes", sizeof(aclrtPtrAttributes)}};
  for (const auto& one : sizes) {
    CAPTURE(one.first);
    CHECK(std::stoull(known.at("sizeof " + one.first).at(0)) == one.second);
  }
}

TEST_CASE("ascend stand-in: the libraries export what the headers declare and nothing else") {
  Signatures functions = vendor_functions();
  declared(text_of(std::filesystem::path(LORA_FIXTURES) / "../ascend/stand_in/stand_in.h"), functions);
  functions["standInOperators"] = functions["standInEngine"] = {};
  std::set<std::string> all;
  for (const char* name : {"libascendcl.so", "libnnopbase.so", "libopapi.so", "libhccl.so"}) {
    for (const std::string& symbol : exported(std::filesystem::path(LORA_STAND_IN) / name)) {
      CAPTURE(symbol);
      CHECK(functions.count(symbol) != 0);
      CHECK(all.insert(symbol).second);
    }
  }
  for (const auto& one : functions) {
    CAPTURE(one.first);
    CHECK(all.count(one.first) != 0);
  }
}

// Starting, devices, contexts

TEST_CASE("ascend stand-in: nothing goes before aclInit, which comes once") {
  std::uint32_t count = 0;
  void* pointer = nullptr;
  CHECK(aclrtGetDeviceCount(&count) == ACL_ERROR_UNINITIALIZE);
  CHECK(aclrtSetDevice(0) == ACL_ERROR_UNINITIALIZE);
  CHECK(aclrtMalloc(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_UNINITIALIZE);
  REQUIRE(aclInit(nullptr) == 0);
  CHECK(aclInit(nullptr) == ACL_ERROR_REPEAT_INITIALIZE);
  CHECK(aclrtGetDeviceCount(&count) == 0);
  CHECK(count == 2);
  CHECK(aclFinalize() == 0);
  CHECK(aclFinalize() == ACL_ERROR_REPEAT_FINALIZE);
  {
    const Setting setting("init_error", 507899, 0);
    CHECK(aclInit(nullptr) == 507899);
    CHECK(aclGetRecentErrMsg() != nullptr);
  }
  CHECK(faults() == "");
}

TEST_CASE("ascend stand-in: the text of an error is of a thread and told once") {
  aclGetRecentErrMsg();
  CHECK(aclrtSetDevice(0) == ACL_ERROR_UNINITIALIZE);
  std::thread([] { CHECK(aclGetRecentErrMsg() == nullptr); }).join();
  const char* text = aclGetRecentErrMsg();
  REQUIRE(text != nullptr);
  CHECK(has(text, "aclInit"));
  CHECK(aclGetRecentErrMsg() == nullptr);
}

TEST_CASE("ascend stand-in: each thread sets its device") {
  Card card;
  std::thread([&card] {
    std::int32_t device = 7;
    void* pointer = nullptr;
    CHECK(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL);
    CHECK(aclrtMalloc(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_CONTEXT_NULL);
    CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_CONTEXT_NULL);
    std::uint64_t workspace = 0;
    aclOpExecutor* executor = nullptr;
    CHECK(aclnnMmGetWorkspaceSize(nullptr, nullptr, nullptr, 0, &workspace, &executor) == ACL_ERROR_RT_CONTEXT_NULL);
    CHECK(aclrtSetDevice(0) == 0);
    CHECK(aclrtGetDevice(&device) == 0);
    CHECK(device == 0);
    CHECK(aclrtSynchronizeStream(card.stream) == 0);
    CHECK(aclrtResetDevice(0) == 0);
    CHECK(aclrtSynchronizeStream(card.stream) == 0);  // the other thread's is still counted
    CHECK(aclrtSetDevice(1) == 0);
    CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_STREAM_CONTEXT);
    CHECK(aclrtResetDevice(1) == 0);
    CHECK(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL);
    CHECK(aclrtSetDevice(2) == ACL_ERROR_RT_INVALID_DEVICEID);
    const Setting setting("set_device_error", 1);
    CHECK(aclrtSetDevice(1) == ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  }).join();
}

TEST_CASE("ascend stand-in: contexts of one's own") {
  const Card card;
  aclrtContext primary = nullptr, own = nullptr, now = nullptr;
  CHECK(aclrtGetCurrentContext(&primary) == 0);
  CHECK(aclrtCreateContext(&own, 1) == 0);
  CHECK(aclrtGetCurrentContext(&now) == 0);
  CHECK(now == own);
  std::int32_t device = 0;
  CHECK(aclrtGetDevice(&device) == 0);
  CHECK(device == 1);
  CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_STREAM_CONTEXT);
  std::int64_t value = 7;
  CHECK(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1) == 0);
  CHECK(aclrtSetCurrentContext(primary) == 0);
  CHECK(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value) == 0);
  CHECK(value == 0);
  CHECK(aclrtDestroyContext(own) == 0);
  CHECK(aclrtSetCurrentContext(own) == ACL_ERROR_RT_INVALID_HANDLE);
  CHECK(aclrtDestroyContext(primary) == ACL_ERROR_RT_INVALID_HANDLE);
  CHECK(aclrtSynchronizeStream(card.stream) == 0);
}

TEST_CASE("ascend stand-in: what the machine says of itself") {
  const lora::test::Environment visible("ASCEND_RT_VISIBLE_DEVICES", "1");
  const Card card;
  std::uint32_t count = 0;
  CHECK(aclrtGetDeviceCount(&count) == 0);
  CHECK(count == 1);
  CHECK(std::string(aclrtGetSocName()) == "Ascend910B3");
  std::int32_t version[3] = {};
  CHECK(aclrtGetVersion(version, version + 1, version + 2) == 0);
  CHECK(version[1] == 13);
  aclCANNPackageVersion package;
  CHECK(aclsysGetCANNVersion(ACL_PKG_NAME_CANN, &package) == 0);
  CHECK(std::string(package.version) == "8.1.RC1");
  std::int64_t value = 0;
  CHECK(aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, &value) == 0);
  CHECK(value == 20);
  CHECK(aclGetDeviceCapability(0, ACL_DEVICE_INFO_VECTOR_CORE_NUM, &value) == 0);
  CHECK(value == 40);
  CHECK(aclGetDeviceCapability(1, ACL_DEVICE_INFO_VECTOR_CORE_NUM, &value) == ACL_ERROR_INVALID_PARAM);
  aclrtRunMode mode = ACL_DEVICE;
  CHECK(aclrtGetRunMode(&mode) == 0);
  CHECK(mode == ACL_HOST);
  CHECK(aclDataTypeSize(ACL_BF16) == 2);
  CHECK(aclFloat16ToFloat(aclFloatToFloat16(1.5f)) == 1.5f);
}

// Memory

TEST_CASE("ascend stand-in: memory of the device") {
  Card card;
  void* pointer = nullptr;
  CHECK(aclrtMalloc(&pointer, 0, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(aclrtMalloc(nullptr, 8, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_PARAM_INVALID);
  std::size_t before = 0, free = 0, total = 0;
  CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total) == 0);
  CHECK(total == std::size_t{2} << 30);
  CHECK(aclrtGetMemInfo(ACL_DDR_MEM, &before, &total) == ACL_ERROR_RT_PARAM_INVALID);
  const StandInCounts start = counts();
  void* one = card.allocate(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(one) % 64 == 0);
  // Who needs more must see to it.
  CHECK(reinterpret_cast<std::uintptr_t>(one) % 128 != 0);
  CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total) == 0);
  CHECK(free < before);
  CHECK(counts().allocated_bytes - start.allocated_bytes == 1000);
  // Nothing is zero by itself.
  for (const float value : card.read(one, 250)) CHECK(std::isnan(value));
  CHECK(aclrtMalloc(&pointer, std::size_t{3} << 30, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_MEMORY_ALLOCATION);
  card.release(one);
  CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total) == 0);
  CHECK(free == before);

  CHECK(aclrtFree(nullptr) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(has(faults(), "aclrtFree: null"));
  CHECK(aclrtFree(one) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(has(faults(), "aclrtFree: memory that was freed"));

  aclrtPtrAttributes attributes{};
  void* two = card.allocate(64);
  CHECK(aclrtPointerGetAttributes(two, &attributes) == 0);
  CHECK(attributes.location.type == ACL_MEM_LOCATION_TYPE_DEVICE);
}

TEST_CASE("ascend stand-in: allocations fail when they are told to") {
  Card card;
  void* pointer = nullptr;
  {
    const Setting setting("fail_allocation", 2);
    card.allocate(64);
    CHECK(aclrtMalloc(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_MEMORY_ALLOCATION);
    card.allocate(64);
  }
  {
    const Setting setting("fail_allocations_from", 2);
    card.allocate(64);
    CHECK(aclrtMalloc(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_MEMORY_ALLOCATION);
    CHECK(aclrtMalloc(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_MEMORY_ALLOCATION);
  }
  const Setting setting("fail_host_allocation", 1);
  CHECK(aclrtMallocHost(&pointer, 64) == ACL_ERROR_RT_MEMORY_ALLOCATION);
  CHECK(aclrtMallocHost(&pointer, 64) == 0);
  CHECK(aclrtFreeHost(pointer) == 0);
}

TEST_CASE("ascend stand-in: copies know their ends") {
  Card card;
  void* device = card.allocate(256);
  Floats host(64, 1.0f), back(64);
  CHECK(aclrtMemcpy(device, 256, host.data(), 256, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
  CHECK(aclrtMemcpy(device, 255, host.data(), 256, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(aclrtMemcpy(back.data(), 256, host.data(), 256, ACL_MEMCPY_HOST_TO_HOST) == 0);
  CHECK(aclrtMemcpyAsync(back.data(), 256, host.data(), 256, ACL_MEMCPY_HOST_TO_HOST, card.stream) ==
        ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
  CHECK(faults() == "");
  CHECK(aclrtMemcpy(device, 256, host.data(), 256, ACL_MEMCPY_DEVICE_TO_HOST) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(has(faults(), "the kind 2 is not that of the addresses"));
  CHECK(aclrtMemcpy(device, 300, host.data(), 300, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(has(faults(), "larger than its memory"));
  void* other = card.allocate(512);
  CHECK(aclrtMemcpyAsync(static_cast<char*>(other) + 32, 128, device, 128, ACL_MEMCPY_DEVICE_TO_DEVICE, card.stream) ==
        ACL_ERROR_RT_ADDR_UNALIGNED);
  CHECK(has(faults(), "64 bytes"));
  CHECK(aclrtMemcpyAsync(other, 128, device, 128, ACL_MEMCPY_DEVICE_TO_DEVICE, card.stream) == 0);
  CHECK(aclrtMemsetAsync(static_cast<char*>(other) + 128, 128, 0, 128, card.stream) == 0);
  CHECK(card.read(other, 33)[0] == 1.0f);
  CHECK(card.read(other, 33)[32] == 0.0f);
  CHECK(aclrtMemset(device, 256, 0, 257) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(aclrtMemset(device, 256, 0, 256) == 0);
  CHECK(card.read(device, 1)[0] == 0.0f);
}

TEST_CASE("ascend stand-in: the host cannot touch memory of the device") {
  const std::string text = [] {
    const lora::test::Ending end = lora::test::run_apart([](int out) {
      dup2(out, STDERR_FILENO);
      const rlimit no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      std::signal(SIGSEGV, SIG_DFL);
      void* pointer = nullptr;
      if (aclInit(nullptr) != 0 || aclrtSetDevice(0) != 0) return;
      if (aclrtMalloc(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST) != 0) return;
      *static_cast<volatile float*>(pointer) = 1;
    });
    CHECK((WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGSEGV));
    return end.text;
  }();
  CHECK(has(text, "host code touched device memory"));
}

TEST_CASE("ascend stand-in: memory that is mapped piece by piece") {
  Card card;
  aclrtPhysicalMemProp property{};
  property.memAttr = ACL_HBM_MEM_HUGE;
  property.location = {0, ACL_MEM_LOCATION_TYPE_DEVICE};
  std::size_t page = 0;
  REQUIRE(aclrtMemGetAllocationGranularity(&property, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &page) == 0);
  void* base = nullptr;
  REQUIRE(aclrtReserveMemAddress(&base, 4 * page, 0, nullptr, 1) == 0);
  aclrtDrvMemHandle first = nullptr, second = nullptr;
  CHECK(aclrtMallocPhysical(&first, page + 1, &property, 0) == ACL_ERROR_RT_PARAM_INVALID);
  REQUIRE(aclrtMallocPhysical(&first, page, &property, 0) == 0);
  REQUIRE(aclrtMallocPhysical(&second, page, &property, 0) == 0);
  const Floats values(1024, 3.0f);
  CHECK(aclrtMemcpy(base, 4096, values.data(), 4096, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(has(faults(), "no memory mapped"));
  REQUIRE(aclrtMapMem(base, page, 0, first, 0) == 0);
  REQUIRE(aclrtMapMem(static_cast<char*>(base) + page, page, 0, second, 0) == 0);
  // Across the border of two pieces.
  void* middle = static_cast<char*>(base) + page - 2048;
  CHECK(aclrtMemcpy(middle, 4096, values.data(), 4096, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
  CHECK(card.read(middle, 1024) == values);
  CHECK(aclrtFreePhysical(first) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(aclrtReleaseMemAddress(base) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(has(faults(), "still mapped"));
  CHECK(aclrtUnmapMem(base) == 0);
  CHECK(aclrtMemset(middle, 4096, 0, 4096) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(has(faults(), "memory that was freed"));
  // The same memory elsewhere keeps what it holds.
  void* elsewhere = static_cast<char*>(base) + 2 * page;
  CHECK(aclrtMapMem(elsewhere, page, 0, first, 0) == 0);
  CHECK(card.read(static_cast<char*>(elsewhere) + page - 2048, 512) == Floats(512, 3.0f));
  CHECK(aclrtUnmapMem(elsewhere) == 0);
  CHECK(aclrtUnmapMem(static_cast<char*>(base) + page) == 0);
  CHECK(aclrtReleaseMemAddress(base) == 0);
  // Addresses are for huge pages or for others.
  REQUIRE(aclrtReserveMemAddress(&base, page, 0, nullptr, 0) == 0);
  CHECK(aclrtMapMem(base, page, 0, first, 0) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(has(faults(), "pages are not of the kind"));
  CHECK(aclrtFreePhysical(first) == 0);
  CHECK(aclrtFreePhysical(second) == 0);
  CHECK(aclrtReleaseMemAddress(base) == 0);
  const Setting setting("vmm", 0, 1);
  CHECK(aclrtReserveMemAddress(&base, page, 0, nullptr, 1) == ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
}

TEST_CASE("ascend stand-in: what is left at the end is told") {
  faults();
  REQUIRE(aclInit(nullptr) == 0);
  REQUIRE(aclrtSetDevice(0) == 0);
  void *device = nullptr, *host = nullptr;
  aclrtEvent event = nullptr;
  REQUIRE(aclrtMalloc(&device, 100, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
  REQUIRE(aclrtMallocHost(&host, 100) == 0);
  REQUIRE(aclrtCreateEvent(&event) == 0);
  {
    const Tensor tensor(device, {25});
    CHECK(standInSet("check_leaks", 1) == 0);
    const std::string text = faults();
    for (const char* part : {"device memory is left: 1 pieces, 100 bytes", "host memory is left", "events are left: 1",
                             "tensors are left: 1"})
      CHECK_MESSAGE(has(text, part), text);
  }
  CHECK(aclrtResetDevice(0) == 0);
  CHECK(has(faults(), "aclrtResetDevice: device memory is left: 1 pieces"));
  CHECK(aclFinalize() == 0);
  CHECK(has(faults(), "at aclFinalize: host memory is left"));
  REQUIRE(aclInit(nullptr) == 0);
  CHECK(aclrtFreeHost(host) == 0);
  CHECK(aclrtDestroyEvent(event) == 0);
  CHECK(aclFinalize() == 0);
  CHECK(faults() == "");
}

// Streams and events

TEST_CASE("ascend stand-in: streams do their work later and in order") {
  const Setting slow("delay_us", 5000, 50);
  Card card;
  constexpr std::int64_t kCount = 512;
  void* a = card.floats(Floats(kCount, 1.0f));
  void* b = card.floats(Floats(kCount, 0.0f));
  aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
  for (int i = 0; i < 20; ++i) CHECK(add(card, a, b, b, kCount, card.stream) == 0);
  CHECK(aclrtStreamQuery(card.stream, &status) == 0);
  CHECK(status == ACL_STREAM_STATUS_NOT_READY);
  CHECK(aclrtSynchronizeStreamWithTimeout(card.stream, 60000) == 0);
  CHECK(aclrtStreamQuery(card.stream, &status) == 0);
  CHECK(status == ACL_STREAM_STATUS_COMPLETE);
  CHECK(card.read(b, kCount) == Floats(kCount, 20.0f));
}

TEST_CASE("ascend stand-in: events order streams") {
  const Setting slow("delay_us", 2000, 50);
  Card card;
  aclrtStream other = nullptr;
  aclrtEvent event = nullptr, never = nullptr;
  REQUIRE(aclrtCreateStreamWithConfig(&other, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC) == 0);
  REQUIRE(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE) == 0);
  REQUIRE(aclrtCreateEventExWithFlag(&never, ACL_EVENT_SYNC) == 0);
  aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  CHECK(aclrtQueryEventStatus(never, &recorded) == 0);
  CHECK(recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE);
  CHECK(aclrtStreamWaitEvent(other, never) == 0);
  CHECK(aclrtSynchronizeEvent(never) == 0);
  void* a = card.floats(Floats(64, 1.0f));
  void* b = card.floats(Floats(64, 0.0f));
  for (int i = 0; i < 5; ++i) CHECK(add(card, a, b, b, 64, card.stream) == 0);
  CHECK(aclrtRecordEvent(event, card.stream) == 0);
  CHECK(aclrtQueryEventStatus(event, &recorded) == 0);
  CHECK(recorded == ACL_EVENT_RECORDED_STATUS_NOT_READY);
  CHECK(aclrtStreamWaitEvent(other, event) == 0);
  for (int i = 0; i < 5; ++i) CHECK(add(card, b, b, b, 64, other) == 0);
  CHECK(aclrtRecordEvent(event, other) == 0);
  CHECK(aclrtSynchronizeEvent(event) == 0);  // of the recording that came last
  Floats values(64);
  CHECK(aclrtMemcpy(values.data(), 256, b, 256, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
  CHECK(values == Floats(64, 160.0f));
  aclrtEvent start = nullptr;
  REQUIRE(aclrtCreateEvent(&start) == 0);
  float ms = 0;
  CHECK(aclrtEventElapsedTime(&ms, start, event) == ACL_ERROR_RT_PARAM_INVALID);
  CHECK(aclrtRecordEvent(start, card.stream) == 0);
  CHECK(add(card, a, b, b, 64, card.stream) == 0);
  CHECK(aclrtRecordEvent(event, card.stream) == 0);
  CHECK(aclrtSynchronizeStream(card.stream) == 0);
  CHECK(aclrtEventElapsedTime(&ms, start, event) == 0);
  CHECK(ms >= 0);
  CHECK(aclrtResetEvent(event, card.stream) == ACL_ERROR_RT_PARAM_INVALID);
  aclrtEvent flagged = nullptr;
  REQUIRE(aclrtCreateEventWithFlag(&flagged, ACL_EVENT_SYNC) == 0);
  CHECK(aclrtResetEvent(flagged, card.stream) == 0);
  aclrtEvent line = nullptr;
  REQUIRE(aclrtCreateEventExWithFlag(&line, ACL_EVENT_TIME_LINE) == 0);
  CHECK(aclrtStreamWaitEvent(other, line) == ACL_ERROR_RT_PARAM_INVALID);
  for (aclrtEvent one : {event, never, start, flagged, line}) CHECK(aclrtDestroyEvent(one) == 0);
  CHECK(aclrtDestroyEvent(event) == ACL_ERROR_RT_INVALID_HANDLE);
  CHECK(has(faults(), "aclrtDestroyEvent"));
  CHECK(aclrtSynchronizeDevice() == 0);
  CHECK(aclrtDestroyStream(other) == 0);
  CHECK(aclrtDestroyStream(other) == ACL_ERROR_RT_INVALID_HANDLE);
  CHECK(has(faults(), "aclrtDestroyStream"));
}

TEST_CASE("ascend stand-in: memory that two streams use without order is told") {
  Card card;
  aclrtStream other = nullptr;
  aclrtEvent event = nullptr;
  REQUIRE(aclrtCreateStream(&other) == 0);
  REQUIRE(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC) == 0);
  void* a = card.floats(Floats(64, 1.0f));
  void* b = card.floats(Floats(64, 1.0f));
  void* c = card.floats(Floats(64, 1.0f));
  const auto settle = [&] { CHECK(aclrtSynchronizeDevice() == 0); };

  CHECK(add(card, a, a, b, 64, card.stream) == 0);
  CHECK(add(card, a, a, c, 64, other) == 0);  // two may read
  CHECK(faults() == "");
  CHECK(add(card, b, a, c, 64, other) == 0);
  CHECK(has(faults(), "aclnnAdd reads self while aclnnAdd writes the same memory"));
  settle();
  CHECK(add(card, b, a, c, 64, other) == 0);  // the host waited for what wrote it
  CHECK(faults() == "");
  CHECK(add(card, a, a, b, 64, card.stream) == 0);
  CHECK(has(faults(), "aclnnAdd writes out while aclnnAdd reads the same memory"));
  settle();
  CHECK(add(card, a, a, b, 64, card.stream) == 0);
  CHECK(aclrtRecordEvent(event, card.stream) == 0);
  CHECK(aclrtStreamWaitEvent(other, event) == 0);
  CHECK(add(card, b, a, c, 64, other) == 0);
  CHECK(faults() == "");
  // A recording after the wait does not count.
  CHECK(add(card, a, a, b, 64, card.stream) == 0);
  faults();
  CHECK(aclrtRecordEvent(event, card.stream) == 0);
  CHECK(add(card, b, a, c, 64, other) == 0);
  CHECK(has(faults(), "with no order between them"));
  // What the host copies at once must not be in use.
  Floats values(64);
  CHECK(aclrtMemcpy(values.data(), 256, c, 256, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
  CHECK(has(faults(), "aclrtMemcpy reads the source while aclnnAdd writes"));
  settle();
  CHECK(aclrtMemcpy(values.data(), 256, c, 256, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
  CHECK(faults() == "");
  CHECK(aclrtDestroyEvent(event) == 0);
  CHECK(aclrtDestroyStream(other) == 0);
}

TEST_CASE("ascend stand-in: memory that is freed too early") {
  const Setting slow("delay_us", 20000, 50);
  Card card;
  void* a = card.floats(Floats(64, 1.0f));
  void* b = card.allocate(256);
  for (int i = 0; i < 10; ++i) CHECK(add(card, a, a, b, 64, card.stream) == 0);
  CHECK(aclrtFree(b) == 0);
  card.forget(b);
  // Whoever runs after it finds it gone, as real devices may or may not.
  CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
  const std::string text = faults();
  CHECK(has(text, "aclrtFree: memory that aclnnAdd on stream"));
  CHECK(has(text, "is memory that was freed"));
}

TEST_CASE("ascend stand-in: copies from pinned memory are late, others are not") {
  const Setting slow("delay_us", 20000, 50);
  Card card;
  void* host = nullptr;
  REQUIRE(aclrtMallocHost(&host, 4096) == 0);
  auto* values = static_cast<float*>(host);
  std::fill(values, values + 1024, 1.0f);
  void* device = card.allocate(4096);
  for (int i = 0; i < 6; ++i)
    CHECK(aclrtMemcpyAsync(device, 4096, host, 4096, ACL_MEMCPY_HOST_TO_DEVICE, card.stream) == 0);
  values[7] = 2;
  CHECK(aclrtSynchronizeStream(card.stream) == 0);
  CHECK(has(faults(), "the host changed the source before the copy ran"));
  CHECK(aclrtMemcpyAsync(device, 4096, host, 4096, ACL_MEMCPY_HOST_TO_DEVICE, card.stream) == 0);
  CHECK(aclrtFreeHost(host) == 0);
  CHECK(has(faults(), "aclrtFreeHost: memory that aclrtMemcpyAsync"));
  aclrtSynchronizeStream(card.stream);
  faults();
}

TEST_CASE("ascend stand-in: results come when the host waits") {
  const Setting slow("delay_us", 20000, 50);
  Card card;
  void* device = card.floats(Floats(64, 4.0f));
  void* host = nullptr;
  REQUIRE(aclrtMallocHost(&host, 256) == 0);
  auto* values = static_cast<float*>(host);
  std::fill(values, values + 64, 0.0f);
  StandInCounts start = counts();
  for (int i = 0; i < 6; ++i)
    CHECK(aclrtMemcpyAsync(device, 256, device, 256, ACL_MEMCPY_DEVICE_TO_DEVICE, card.stream) == 0);
  CHECK(aclrtMemcpyAsync(host, 256, device, 256, ACL_MEMCPY_DEVICE_TO_HOST, card.stream) == 0);
  CHECK(counts().waits == start.waits);
  CHECK(values[0] != 4.0f);
  CHECK(aclrtSynchronizeStream(card.stream) == 0);
  CHECK(values[0] == 4.0f);
  CHECK(counts().waits == start.waits + 1);
  Floats pageable(64);
  start = counts();
  CHECK(aclrtMemcpyAsync(pageable.data(), 256, device, 256, ACL_MEMCPY_DEVICE_TO_HOST, card.stream) == 0);
  CHECK(pageable[63] == 4.0f);
  CHECK(counts().waits == start.waits + 1);
  CHECK(counts().copies_out == start.copies_out + 1);
  CHECK(counts().bytes_out == start.bytes_out + 256);
  start = counts();
  CHECK(aclrtMemcpyAsync(device, 256, pageable.data(), 256, ACL_MEMCPY_HOST_TO_DEVICE, card.stream) == 0);
  CHECK(counts().waits == start.waits);
  CHECK(counts().copies_in == start.copies_in + 1);
  CHECK(has(faults(), "memory of the host that is not page-locked"));
  CHECK(aclrtFreeHost(host) == 0);
}

// What goes wrong on the device

TEST_CASE("ascend stand-in: an exception of a kernel shows when the host waits") {
  Card card;
  void* a = card.floats(Floats(64, 1.0f));
  void* b = card.floats(Floats(64, 0.0f));
  const Setting setting("kernel_error_at", 2);
  for (int i = 0; i < 4; ++i) CHECK(add(card, a, b, b, 64, card.stream) == 0);
  CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
  const char* text = aclGetRecentErrMsg();
  REQUIRE(text != nullptr);
  CHECK(has(text, "aclnnAdd"));
  // Nothing goes in that context any more.
  void* pointer = nullptr;
  CHECK(aclrtMalloc(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_AICORE_EXCEPTION);
  CHECK(add(card, a, b, b, 64, card.stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
  CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
  CHECK(faults() == "");
}

TEST_CASE("ascend stand-in: a device that is lost answers at once") {
  Card card;
  void* a = card.floats(Floats(64, 1.0f));
  void* b = card.floats(Floats(64, 0.0f));
  CHECK(aclrtSynchronizeStream(card.stream) == 0);
  const Setting setting("lose_device_at", 2);
  CHECK(add(card, a, b, b, 64, card.stream) == 0);
  CHECK(add(card, a, b, b, 64, card.stream) == 0);
  CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  CHECK(add(card, a, b, b, 64, card.stream) == ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  aclrtDeviceStatus status = ACL_RT_DEVICE_STATUS_NORMAL;
  CHECK(aclrtQueryDeviceStatus(0, &status) == 0);
  CHECK(status == ACL_RT_DEVICE_STATUS_ABNORMAL);
  faults();
}

TEST_CASE("ascend stand-in: work that never ends") {
  Card card;
  aclrtStream other = nullptr;
  REQUIRE(aclrtCreateStream(&other) == 0);
  void* a = card.floats(Floats(64, 1.0f));
  void* b = card.floats(Floats(64, 0.0f));
  const Setting setting("hang_at", 1);
  CHECK(add(card, a, b, b, 64, other) == 0);
  CHECK(aclrtSynchronizeStreamWithTimeout(other, 20) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  CHECK(aclrtSynchronizeDeviceWithTimeout(20) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  aclrtEvent event = nullptr;
  REQUIRE(aclrtCreateEvent(&event) == 0);
  CHECK(aclrtRecordEvent(event, other) == 0);
  CHECK(aclrtSynchronizeEventWithTimeout(event, 20) == ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
  CHECK(aclrtDestroyStreamForce(other) == 0);
  CHECK(aclrtDestroyEvent(event) == 0);
}

TEST_CASE("ascend stand-in: memory of an operator must be live when it runs") {
  Card card;
  void* a = card.floats(Floats(64, 1.0f));
  alignas(64) static float host[64];
  CHECK(add(card, a, host, a, 64, card.stream) == 0);
  CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
  CHECK(has(faults(), "aclnnAdd: other is no device memory"));
}

// Descriptions and executors

TEST_CASE("ascend stand-in: descriptions") {
  const Card card;
  const std::int64_t shape[2] = {3, 4}, strides[2] = {1, 3}, stored[1] = {12};
  CHECK(aclCreateTensor(nullptr, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, stored, 1, nullptr) == nullptr);
  aclTensor* tensor = aclCreateTensor(shape, 2, ACL_BF16, strides, 5, ACL_FORMAT_ND, stored, 1, nullptr);
  std::int64_t* values = nullptr;
  std::uint64_t count = 0;
  CHECK(aclGetViewShape(tensor, &values, &count) == 0);
  CHECK(std::vector<std::int64_t>(values, values + count) == std::vector<std::int64_t>{3, 4});
  delete[] values;
  CHECK(aclGetViewStrides(tensor, &values, &count) == 0);
  CHECK(std::vector<std::int64_t>(values, values + count) == std::vector<std::int64_t>{1, 3});
  delete[] values;
  CHECK(aclGetStorageShape(tensor, &values, &count) == 0);
  CHECK(count == 1);
  delete[] values;
  std::int64_t offset = 0;
  aclDataType type = ACL_FLOAT;
  aclFormat format = ACL_FORMAT_NCHW;
  CHECK(aclGetViewOffset(tensor, &offset) == 0);
  CHECK(aclGetDataType(tensor, &type) == 0);
  CHECK(aclGetFormat(tensor, &format) == 0);
  CHECK((offset == 5 && type == ACL_BF16 && format == ACL_FORMAT_ND));
  aclTensorList* list = aclCreateTensorList(&tensor, 1);
  CHECK(aclGetTensorListSize(list, &count) == 0);
  CHECK(count == 1);
  CHECK(aclDestroyTensor(tensor) != 0);
  CHECK(has(faults(), "a list owns the tensor"));
  CHECK(aclDestroyTensorList(list) == 0);
  CHECK(aclDestroyTensorList(list) != 0);
  CHECK(has(faults(), "aclDestroyTensorList"));
  CHECK(aclDestroyTensor(tensor) != 0);
  CHECK(has(faults(), "aclDestroyTensor"));
  CHECK(aclDestroyTensor(nullptr) == 0);
  const std::int64_t numbers[3] = {1, 2, 3};
  aclIntArray* array = aclCreateIntArray(numbers, 3);
  CHECK(aclGetIntArraySize(array, &count) == 0);
  CHECK(count == 3);
  CHECK(aclDestroyIntArray(array) == 0);
  const bool bools[2] = {true, false};
  aclBoolArray* flags = aclCreateBoolArray(bools, 2);
  CHECK(aclDestroyBoolArray(flags) == 0);
  const float reals[1] = {1};
  aclFloatArray* floats = aclCreateFloatArray(reals, 1);
  CHECK(aclDestroyFloatArray(floats) == 0);
  CHECK(aclCreateScalar(nullptr, ACL_FLOAT) == nullptr);
}

TEST_CASE("ascend stand-in: what an operator refuses") {
  Card card;
  void* a = card.floats(Floats(4096, 1.0f));
  void* b = card.floats(Floats(4096, 1.0f));
  const Scalar one(1);
  std::uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  const auto sum = [&](const aclTensor* x, const aclTensor* y, const aclScalar* alpha, aclTensor* z) {
    const int code = aclnnAddGetWorkspaceSize(x, y, alpha, z, &workspace, &executor);
    if (code == 0) aclDestroyAclOpExecutor(executor);
    return code;
  };
  const Tensor x(a, {8, 16}), y(b, {8, 16});
  CHECK(sum(x, x, one, y) == 0);
  CHECK(sum(x, nullptr, one, y) == ACLNN_ERR_PARAM_NULLPTR);
  CHECK(sum(x, x, nullptr, y) == ACLNN_ERR_PARAM_NULLPTR);
  CHECK(aclnnAddGetWorkspaceSize(x, x, one, y, nullptr, &executor) == ACLNN_ERR_PARAM_NULLPTR);
  CHECK(sum(x, x, one, Tensor(b, {16, 8})) == ACLNN_ERR_PARAM_INVALID);
  CHECK(sum(x, x, one, Tensor(b, {8, 16}, ACL_COMPLEX64)) == ACLNN_ERR_PARAM_INVALID);
  CHECK(sum(Tensor(a, {1, 1, 1, 1, 1, 1, 1, 1, 1}), x, one, y) == ACLNN_ERR_PARAM_INVALID);
  CHECK(sum(Tensor(nullptr, {8, 16}), x, one, y) == ACLNN_ERR_PARAM_NULLPTR);
  CHECK(sum(Tensor(nullptr, {0, 16}), Tensor(nullptr, {0, 16}), one, Tensor(nullptr, {0, 16})) == 0);
  CHECK(workspace == 0);
  CHECK(faults() == "");
  CHECK(sum(Tensor(static_cast<char*>(a) + 16, {8, 16}), x, one, y) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "self of aclnnAdd is not aligned to 32 bytes"));
  CHECK(sum(Tensor(a, {8, 16}, ACL_FLOAT, 4), x, one, y) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "self of aclnnAdd is not aligned to 32 bytes"));
  CHECK(sum(Tensor(a, {8, 16}, ACL_FLOAT, 8), x, one, y) == 0);
  CHECK(sum(x, x, one, Tensor(b, {8, 16}, ACL_FLOAT, 0, {0, 1})) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "a stride of 0"));
  const std::int64_t shape[1] = {64}, stride[1] = {1}, stored[1] = {63};
  aclTensor* small = aclCreateTensor(shape, 1, ACL_FLOAT, stride, 0, ACL_FORMAT_ND, stored, 1, a);
  CHECK(sum(small, small, one, Tensor(b, {64})) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "leaves its storage"));
  CHECK(aclDestroyTensor(small) == 0);
  CHECK(sum(small, x, one, y) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "destroyed"));
  // A result may be an operand, but not a part of one.
  CHECK(sum(x, x, one, x) == 0);
  CHECK(sum(Tensor(a, {64}), Tensor(a, {64}), one, Tensor(a, {64}, ACL_FLOAT, 8)) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "share memory"));
  // Rows of one matrix that lie between those of the other share nothing.
  CHECK(sum(Tensor(a, {8, 16}, ACL_FLOAT, 0, {32, 1}), x, one, Tensor(a, {8, 16}, ACL_FLOAT, 16, {32, 1})) ==
        ACLNN_ERR_PARAM_INVALID);  // x does
  faults();
  CHECK(sum(Tensor(a, {8, 16}, ACL_FLOAT, 0, {32, 1}), y, one, Tensor(a, {8, 16}, ACL_FLOAT, 16, {32, 1})) == 0);
  CHECK(faults() == "");
  const Setting missing("missing_kernels", 1, 0);
  CHECK(sum(x, x, one, y) == ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND);
}

TEST_CASE("ascend stand-in: an executor is for one run") {
  Card card;
  void* a = card.floats(Floats(128, 1.0f));
  void* b = card.floats(Floats(128, 2.0f));
  void* c = card.floats(Floats(128, 0.0f));
  const Tensor x(a, {128}), y(b, {128}), z(c, {128});
  const Scalar one(1);
  std::uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  const auto prepare = [&] { REQUIRE(aclnnAddGetWorkspaceSize(x, y, one, z, &workspace, &executor) == 0); };
  prepare();
  CHECK(aclnnAdd(nullptr, 0, executor, card.stream) == 0);
  CHECK(aclnnAdd(nullptr, 0, executor, card.stream) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "the executor was used before"));
  prepare();
  CHECK(aclnnMm(nullptr, 0, executor, card.stream) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "the executor is of aclnnAdd"));
  CHECK(aclDestroyAclOpExecutor(executor) == 0);
  CHECK(card.read(c, 128) == Floats(128, 3.0f));

  // Repeatable ones take other addresses.
  prepare();
  CHECK(aclSetInputTensorAddr(executor, 0, x, b) == ACLNN_ERR_PARAM_INVALID);
  CHECK(aclSetAclOpExecutorRepeatable(executor) == 0);
  CHECK(aclnnAdd(nullptr, 0, executor, card.stream) == 0);
  CHECK(aclSetInputTensorAddr(executor, 0, x, b) == 0);
  CHECK(aclSetOutputTensorAddr(executor, 0, z, a) == 0);
  CHECK(aclnnAdd(nullptr, 0, executor, card.stream) == 0);
  CHECK(aclDestroyAclOpExecutor(executor) == 0);
  CHECK(card.read(a, 128) == Floats(128, 4.0f));
  CHECK(card.read(c, 128) == Floats(128, 3.0f));
}

TEST_CASE("ascend stand-in: workspaces are needed, and theirs alone") {
  Card card;
  void* a = card.floats(Floats(64, 1.0f));
  void* b = card.floats(Floats(64, 2.0f));
  void* c = card.floats(Floats(64, 0.0f));
  const Tensor x(a, {4, 16}), y(b, {16, 4}), z(c, {4, 4});
  std::uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  const auto prepare = [&] { REQUIRE(aclnnMmGetWorkspaceSize(x, y, z, 0, &workspace, &executor) == 0); };
  prepare();
  REQUIRE(workspace > 0);
  CHECK(aclnnMm(nullptr, workspace, executor, card.stream) == ACLNN_ERR_PARAM_INVALID);
  void* memory = card.allocate(workspace);
  CHECK(aclnnMm(memory, workspace - 1, executor, card.stream) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "a workspace of"));
  CHECK(aclnnMm(memory, workspace, executor, card.stream) == 0);
  CHECK(card.read(c, 16) == Floats(16, 32.0f));
  prepare();
  CHECK(aclnnMm(b, workspace, executor, card.stream) == 0);
  CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
  const std::string text = faults();
  CHECK(has(text, "the workspace shares memory with mat2"));
  CHECK(has(text, "the workspace is larger than its memory"));
}

namespace {

/// What a program that makes a mistake is told: mistake(card, a, b), with two vectors of 64 ones.
template <class Mistake>
std::string told(const Mistake& mistake) {
  std::string text;
  {
    Card card;
    void* a = card.floats(Floats(64, 1.0f));
    void* b = card.floats(Floats(64, 1.0f));
    mistake(card, a, b);
    text = faults();
    aclrtSynchronizeStream(card.stream);
    text += faults();
  }
  return text;
}

}  // namespace

TEST_CASE("ascend stand-in: mistakes that a program makes are told") {
  const Setting slow("delay_us", 20000, 50);
  const auto check = [](const char* part, const auto& mistake) {
    const std::string text = told(mistake);
    CHECK_MESSAGE(has(text, part), text);
  };
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  check("aclrtFree: memory that aclnnMm on stream", [&](Card& card, void* a, void* b) {
    const Tensor x(a, {8, 8}), y(b, {8, 8});
    for (int i = 0; i < 4; ++i) CHECK(add(card, b, b, b, 64, card.stream) == 0);
    REQUIRE(aclnnMmGetWorkspaceSize(x, x, y, 0, &size, &executor) == 0);
    void* workspace = card.allocate(size);
    CHECK(aclnnMm(workspace, size, executor, card.stream) == 0);
    card.release(workspace);
  });
  check("aclnnAdd: self was destroyed between the phases", [&](Card& card, void* a, void* b) {
    const Tensor y(a, {64}), z(b, {64});
    const Scalar one(1);
    {
      const Tensor x(a, {64});
      REQUIRE(aclnnAddGetWorkspaceSize(x, y, one, z, &size, &executor) == 0);
    }
    CHECK(aclnnAdd(nullptr, 0, executor, card.stream) == ACLNN_ERR_PARAM_INVALID);
    CHECK(aclDestroyAclOpExecutor(executor) == 0);
  });
  check("aclDestroyAclOpExecutor: what is destroyed is no such object, or was destroyed before",
        [&](Card& card, void* a, void* b) {
          const Tensor x(a, {64}), y(b, {64});
          const Scalar one(1);
          REQUIRE(aclnnAddGetWorkspaceSize(x, x, one, y, &size, &executor) == 0);
          CHECK(aclnnAdd(nullptr, 0, executor, card.stream) == 0);
          CHECK(aclDestroyAclOpExecutor(executor) != 0);
        });
  check("aclrtFree: memory that was not allocated",
        [](Card&, void* a, void*) { CHECK(aclrtFree(static_cast<char*>(a) + 64) != 0); });
  check("aclnnAdd: other is no device memory", [](Card& card, void* a, void* b) {
    void* host = nullptr;
    REQUIRE(aclrtMallocHost(&host, 256) == 0);
    CHECK(add(card, a, host, b, 64, card.stream) == 0);
    CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK(aclrtFreeHost(host) == 0);
  });
  check("aclnnAdd: other is memory of device 1", [](Card& card, void* a, void* b) {
    void* elsewhere = nullptr;
    CHECK(aclrtSetDevice(1) == 0);
    CHECK(aclrtMalloc(&elsewhere, 256, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
    CHECK(aclrtSetDevice(0) == 0);
    CHECK(add(card, a, elsewhere, b, 64, card.stream) == 0);
    CHECK(aclrtSynchronizeStream(card.stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK(aclrtResetDevice(0) == 0);
    CHECK(aclrtSetDevice(1) == 0);
    CHECK(aclrtFree(elsewhere) == 0);
    CHECK(aclrtResetDevice(1) == 0);
    CHECK(aclrtResetDevice(1) == 0);
    CHECK(aclrtSetDevice(0) == 0);
  });
  check("aclrtDestroyStream: the host did not wait for the stream's work", [](Card& card, void* a, void* b) {
    aclrtStream other = nullptr;
    REQUIRE(aclrtCreateStream(&other) == 0);
    for (int i = 0; i < 4; ++i) CHECK(add(card, a, a, b, 64, other) == 0);
    CHECK(aclrtDestroyStream(other) == 0);
  });
  check("aclnnAdd: a stream that is none, or was destroyed", [](Card& card, void* a, void* b) {
    aclrtStream other = nullptr;
    REQUIRE(aclrtCreateStream(&other) == 0);
    CHECK(aclrtDestroyStream(other) == 0);
    CHECK(add(card, a, a, b, 64, other) == ACL_ERROR_RT_INVALID_HANDLE);
  });
  check("aclrtRecordEvent: an event that is none, or was destroyed", [](Card& card, void*, void*) {
    aclrtEvent event = nullptr;
    REQUIRE(aclrtCreateEvent(&event) == 0);
    CHECK(aclrtDestroyEvent(event) == 0);
    CHECK(aclrtRecordEvent(event, card.stream) == ACL_ERROR_RT_INVALID_HANDLE);
  });
  check("aclrtRecordEvent: an event of aclrtCreateEvent that was recorded before", [](Card& card, void*, void*) {
    aclrtEvent event = nullptr;
    REQUIRE(aclrtCreateEvent(&event) == 0);
    for (int i = 0; i < 2; ++i) CHECK(aclrtRecordEvent(event, card.stream) == 0);
    CHECK(aclrtDestroyEvent(event) == 0);
  });
  check("aclrtResetDevice: 1 streams are left", [](Card&, void*, void*) {
    aclrtStream other = nullptr;
    CHECK(aclrtSetDevice(1) == 0);
    REQUIRE(aclrtCreateStream(&other) == 0);
    CHECK(aclrtResetDevice(1) == 0);
    CHECK(aclrtSetDevice(0) == 0);
    CHECK(aclrtResetDevice(0) == 0);
  });
  check("aclrtUnmapMem: memory that aclnnAdd on stream", [](Card& card, void* a, void*) {
    aclrtPhysicalMemProp property{};
    property.memAttr = ACL_HBM_MEM_HUGE;
    property.location = {0, ACL_MEM_LOCATION_TYPE_DEVICE};
    constexpr std::size_t page = std::size_t{2} << 20;
    void* base = nullptr;
    aclrtDrvMemHandle memory = nullptr;
    REQUIRE(aclrtReserveMemAddress(&base, page, 0, nullptr, 1) == 0);
    REQUIRE(aclrtMallocPhysical(&memory, page, &property, 0) == 0);
    REQUIRE(aclrtMapMem(base, page, 0, memory, 0) == 0);
    for (int i = 0; i < 4; ++i) CHECK(add(card, a, a, base, 64, card.stream) == 0);
    CHECK(aclrtUnmapMem(base) == 0);
    aclrtSynchronizeStream(card.stream);
    CHECK(aclrtFreePhysical(memory) == 0);
    CHECK(aclrtReleaseMemAddress(base) == 0);
  });
  check("aclrtMemcpy reads the source while aclnnAdd writes the same memory", [](Card& card, void* a, void* b) {
    Floats values(64);
    for (int i = 0; i < 4; ++i) CHECK(add(card, a, a, b, 64, card.stream) == 0);
    CHECK(aclrtSynchronizeStream(nullptr) == 0);  // which is another one
    CHECK(aclrtMemcpy(values.data(), 256, b, 256, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
  });
}

TEST_CASE("ascend stand-in: wide results of narrow products may be missing") {
  Card card;
  void* a = card.allocate(4096);
  void* c = card.allocate(4096);
  const Tensor x(a, {4, 4}, ACL_BF16), z(c, {4, 4}), narrow(c, {4, 4}, ACL_BF16), half(a, {4, 4}, ACL_FLOAT16);
  std::uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  const auto code = [&](aclTensor* p, aclTensor* q, aclTensor* r, std::int8_t mode) {
    const int result = aclnnMmGetWorkspaceSize(p, q, r, mode, &workspace, &executor);
    if (result == 0) aclDestroyAclOpExecutor(executor);
    return result;
  };
  CHECK(code(x, x, narrow, 0) == 0);
  CHECK(code(x, x, z, 0) == 0);
  CHECK(code(x, half, narrow, 0) == ACLNN_ERR_PARAM_INVALID);
  CHECK(code(x, x, narrow, 2) == ACLNN_ERR_PARAM_INVALID);
  CHECK(code(x, x, narrow, 3) == ACLNN_ERR_PARAM_INVALID);
  const Setting setting("fp32_output", 0, 1);
  CHECK(code(x, x, z, 0) == ACLNN_ERR_PARAM_INVALID);
  CHECK(code(x, x, narrow, 0) == 0);
}

TEST_CASE("ascend stand-in: memory behind operands") {
  Card card;
  void* a = nullptr;
  REQUIRE(aclrtMallocAlign32(&a, 128, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
  CHECK(aclrtMemset(a, 128, 0, 128) == 0);
  CHECK(add(card, a, a, a, 32, card.stream) == 0);
  CHECK(has(faults(), "less than 32 bytes of memory behind"));
  CHECK(add(card, a, a, a, 24, card.stream) == 0);
  CHECK(faults() == "");
  CHECK(aclrtSynchronizeStream(card.stream) == 0);
  CHECK(aclrtFree(a) == 0);
}

TEST_CASE("ascend stand-in: two parts of attention are put together as the documents allow") {
  Card card;
  constexpr std::size_t room = std::size_t{1} << 20;
  auto* const memory = static_cast<char*>(card.allocate(16 * room));
  const auto place = [&](std::size_t i) { return memory + i * room; };
  void* const workspace = card.allocate(std::size_t{16} << 20);
  struct Given {
    std::int64_t heads = 2, width = 64;
    aclDataType type = ACL_FLOAT;
    std::vector<std::int64_t> ends = {0, 1, 3};
    std::size_t out = 6;  // where it goes
    aclDataType of_ends = ACL_INT64;
  };
  const auto call = [&](const Given& given) {
    const std::vector<float> ones(room / 4, 1.0f);
    for (std::size_t i = 0; i < 9; ++i)
      REQUIRE(aclrtMemcpy(place(i), room, ones.data(), room, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
    REQUIRE(aclrtMemcpy(place(9), room, given.ends.data(), given.ends.size() * 8, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
    const Dims rows{3, given.heads, given.width}, statistics{3, given.heads, 8};
    const Tensor before(place(0), rows, given.type), top(place(1), statistics), sum(place(2), statistics);
    const Tensor now(place(3), rows, given.type), own_top(place(4), statistics), own_sum(place(5), statistics);
    const Tensor ends(place(9), {static_cast<std::int64_t>(given.ends.size())}, given.of_ends);
    const Tensor out(place(given.out), rows, given.type), to_top(place(7), statistics), to_sum(place(8), statistics);
    std::uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    char layout[] = "TND";
    const int code = aclnnRingAttentionUpdateGetWorkspaceSize(before, top, sum, now, own_top, own_sum, ends, layout,
                                                              out, to_top, to_sum, &bytes, &executor);
    if (code != 0) return code;
    CHECK(aclnnRingAttentionUpdate(workspace, bytes, executor, card.stream) == 0);
    return aclrtSynchronizeStream(card.stream);
  };
  CHECK(call({}) == 0);
  CHECK(card.read(place(6), 384) == Floats(384, 1.0f));
  CHECK(card.read(place(8), 48) == Floats(48, 2.0f));
  CHECK(call({.heads = 42, .width = 128}) == 0);
  CHECK(call({.heads = 64, .width = 128, .type = ACL_BF16}) == 0);
  for (const Given& too_many : {Given{.width = 32}, Given{.width = 832}, Given{.heads = 43, .width = 128},
                                Given{.heads = 65, .width = 128, .type = ACL_BF16}})
    CHECK(call(too_many) == ACLNN_ERR_INNER_TILING_ERROR);
  CHECK(call({.of_ends = ACL_INT32}) == ACLNN_ERR_PARAM_INVALID);
  CHECK(call({.ends = {3}}) == ACLNN_ERR_PARAM_INVALID);
  CHECK(faults() == "");
  CHECK(call({.out = 0}) == ACLNN_ERR_PARAM_INVALID);
  CHECK(has(faults(), "attnOutOut and prevAttnOut share memory"));
  CHECK(call({.ends = {0, 2}}) == 0);  // which leaves rows out
  CHECK(has(faults(), "actualSeqQlen does not go from 0 to T"));
  CHECK(call({.ends = {1, 3}}) == 0);
  CHECK(has(faults(), "actualSeqQlen does not go from 0 to T"));
  CHECK(call({.ends = {0, 4}}) != 0);
  (void)faults();
}

// Counting

TEST_CASE("ascend stand-in: a dry run counts and computes nothing") {
  const Setting dry("dry", 1, 0), memory("memory_bytes", std::int64_t{64} << 30, std::int64_t{2} << 30);
  Card card;
  const auto bytes = std::size_t{40} << 30;
  void* weights = card.allocate(bytes);
  void* workspace = card.allocate(std::size_t{1} << 20);
  void* host = nullptr;
  REQUIRE(aclrtMallocHost(&host, bytes) == 0);
  const StandInCounts start = counts();
  standInResetOperators();
  CHECK(aclrtMemcpyAsync(weights, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE, card.stream) == 0);
  const Tensor x(weights, {8192, 8192}, ACL_BF16), y(weights, {8192, 65536}, ACL_BF16, 1 << 26);
  const Tensor z(weights, {8192, 65536}, ACL_BF16, std::int64_t{1} << 31);
  std::uint64_t needed = 0;
  aclOpExecutor* executor = nullptr;
  for (int i = 0; i < 3; ++i) {
    CHECK(aclnnMmGetWorkspaceSize(x, y, z, 0, &needed, &executor) == 0);
    CHECK(aclnnMm(workspace, needed, executor, card.stream) == 0);
  }
  CHECK(aclnnMmGetWorkspaceSize(x, x, z, 0, &needed, &executor) == ACLNN_ERR_PARAM_INVALID);
  Floats result(16, 7.0f);
  CHECK(aclrtMemcpy(result.data(), 64, weights, 64, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
  CHECK(result == Floats(16, 0.0f));
  CHECK(aclrtSynchronizeStream(card.stream) == 0);
  const StandInCounts end = counts();
  CHECK(end.launches - start.launches == 3);
  CHECK(end.flops - start.flops == 3 * 2.0 * 8192 * 8192 * 65536);
  CHECK(end.operator_bytes - start.operator_bytes == 3 * 2.0 * (8192.0 * 8192 + 2 * 8192.0 * 65536));
  CHECK(end.bytes_in - start.bytes_in == bytes);
  std::map<std::string, std::uint64_t> launches;
  standInOperators(
      [](void* user, const char* name, std::uint64_t count, double flops, double) {
        CHECK(flops > 0);
        (*static_cast<std::map<std::string, std::uint64_t>*>(user))[name] = count;
      },
      &launches);
  CHECK(launches == std::map<std::string, std::uint64_t>{{"aclnnMm", 3}});
  CHECK(aclrtFreeHost(host) == 0);
  // What reaches beyond its memory is told in a dry run too.
  void* small = card.allocate(1024);
  CHECK(add(card, small, small, small, 512, card.stream) == 0);
  CHECK(has(faults(), "larger than its memory"));
}

// Collectives

namespace {

/// Calls f(rank, communicator, stream) in a thread for each rank.
void on_ranks(std::uint32_t ranks, const std::function<void(std::uint32_t, HcclComm, aclrtStream)>& f) {
  HcclRootInfo root;
  REQUIRE(HcclGetRootInfo(&root) == HCCL_SUCCESS);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      HcclComm comm = nullptr;
      aclrtStream stream = nullptr;
      CHECK(aclrtSetDevice(static_cast<std::int32_t>(rank)) == 0);
      CHECK(aclrtCreateStream(&stream) == 0);
      CHECK(HcclCommInitRootInfo(ranks, &root, rank, &comm) == HCCL_SUCCESS);
      f(rank, comm, stream);
      CHECK(HcclCommDestroy(comm) == HCCL_SUCCESS);
      CHECK(aclrtDestroyStream(stream) == 0);
      CHECK(aclrtResetDevice(static_cast<std::int32_t>(rank)) == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Device memory with floats, for a thread of a rank.
struct Buffer {
  explicit Buffer(const Floats& values) : count(values.size()) {
    CHECK(aclrtMalloc(&data, count * 4, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
    CHECK(aclrtMemcpy(data, count * 4, values.data(), count * 4, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { aclrtFree(data); }
  Floats read(aclrtStream stream) const {
    Floats values(count);
    CHECK(aclrtSynchronizeStream(stream) == 0);
    CHECK(aclrtMemcpy(values.data(), count * 4, data, count * 4, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
    return values;
  }

  void* data = nullptr;
  std::size_t count;
};

void collect_all(std::uint32_t ranks, std::uint32_t rank, HcclComm comm, aclrtStream stream) {
  const auto mine = static_cast<float>(rank + 1), all = static_cast<float>(ranks);
  std::uint32_t number = 0;
  CHECK(HcclGetRankSize(comm, &number) == HCCL_SUCCESS);
  CHECK(number == ranks);
  CHECK(HcclGetRankId(comm, &number) == HCCL_SUCCESS);
  CHECK(number == rank);
  const Buffer a(Floats(8, mine)), b(Floats(8, 0.0f)), wide(Floats(8 * ranks, mine));
  CHECK(HcclAllReduce(a.data, b.data, 8, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream) == HCCL_SUCCESS);
  CHECK(b.read(stream) == Floats(8, all * (all + 1) / 2));
  CHECK(HcclAllReduce(b.data, b.data, 8, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, comm, stream) == HCCL_SUCCESS);
  CHECK(HcclBroadcast(a.data, 8, HCCL_DATA_TYPE_FP32, ranks - 1, comm, stream) == HCCL_SUCCESS);
  CHECK(a.read(stream) == Floats(8, all));
  CHECK(HcclReduceScatter(wide.data, b.data, 8, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream) == HCCL_SUCCESS);
  CHECK(b.read(stream) == Floats(8, all * (all + 1) / 2));
  const Buffer c(Floats(8, mine));
  CHECK(HcclAllGather(c.data, wide.data, 8, HCCL_DATA_TYPE_FP32, comm, stream) == HCCL_SUCCESS);
  Floats expected;
  for (std::uint32_t i = 0; i < ranks; ++i) expected.insert(expected.end(), 8, static_cast<float>(i + 1));
  CHECK(wide.read(stream) == expected);
  CHECK(HcclReduce(c.data, b.data, 8, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MIN, 0, comm, stream) == HCCL_SUCCESS);
  if (rank == 0) CHECK(b.read(stream) == Floats(8, 1.0f));
  CHECK(HcclScatter(wide.data, b.data, 8, HCCL_DATA_TYPE_FP32, 0, comm, stream) == HCCL_SUCCESS);
  CHECK(b.read(stream) == Floats(8, mine));
  const Buffer d(Floats(8 * ranks, mine));
  CHECK(HcclAlltoAll(d.data, 8, HCCL_DATA_TYPE_FP32, wide.data, 8, HCCL_DATA_TYPE_FP32, comm, stream) == HCCL_SUCCESS);
  CHECK(wide.read(stream) == expected);
  CHECK(HcclBarrier(comm, stream) == HCCL_SUCCESS);
  if (ranks > 1) {
    // Around the circle, and both ways at once.
    const std::uint32_t next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    HcclSendRecvItem items[2] = {{HCCL_SEND, c.data, 8, HCCL_DATA_TYPE_FP32, next},
                                 {HCCL_RECV, b.data, 8, HCCL_DATA_TYPE_FP32, last}};
    CHECK(HcclBatchSendRecv(items, 2, comm, stream) == HCCL_SUCCESS);
    CHECK(b.read(stream) == Floats(8, static_cast<float>(last + 1)));
    // The even ranks among themselves, in reverse order.
    std::vector<std::uint32_t> even;
    for (std::uint32_t i = 0; i < ranks; i += 2) even.insert(even.begin(), i);
    const auto place = std::find(even.begin(), even.end(), rank);
    HcclCommConfig config{};
    HcclComm part = nullptr;
    if (place != even.end()) {
      CHECK(HcclCreateSubCommConfig(&comm, static_cast<std::uint32_t>(even.size()), even.data(), 7,
                                    static_cast<std::uint32_t>(place - even.begin()), &config, &part) == HCCL_SUCCESS);
      CHECK(HcclAllReduce(c.data, b.data, 8, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, part, stream) == HCCL_SUCCESS);
      float sum = 0;
      for (const std::uint32_t i : even) sum += static_cast<float>(i + 1);
      CHECK(b.read(stream) == Floats(8, sum));
      CHECK(HcclCommDestroy(part) == HCCL_SUCCESS);
    } else {
      CHECK(HcclCreateSubCommConfig(&comm, 0, nullptr, 0xFFFFFFFFu, 0, &config, &part) == HCCL_SUCCESS);
    }
  }
  if (ranks > 1 && rank == 0) CHECK(HcclSend(c.data, 8, HCCL_DATA_TYPE_FP32, 1, comm, stream) == HCCL_SUCCESS);
  if (ranks > 1 && rank == 1) {
    CHECK(HcclRecv(b.data, 8, HCCL_DATA_TYPE_FP32, 0, comm, stream) == HCCL_SUCCESS);
    CHECK(b.read(stream) == Floats(8, 1.0f));
  }
  CHECK(aclrtSynchronizeStream(stream) == 0);
}

/// All for tests of collectives; doctest's own main thread need not be a rank.
struct Library {
  Library() {
    faults();
    standInSet("devices", 4);
    REQUIRE(aclInit(nullptr) == 0);
    REQUIRE(aclrtSetDevice(0) == 0);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    CHECK(aclrtResetDevice(0) == 0);
    CHECK(aclFinalize() == 0);
    standInSet("devices", 2);
    CHECK(faults() == "");
  }
};

}  // namespace

TEST_CASE("ascend stand-in: collectives among threads") {
  const Library library;
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    CAPTURE(ranks);
    on_ranks(ranks,
             [&](std::uint32_t rank, HcclComm comm, aclrtStream stream) { collect_all(ranks, rank, comm, stream); });
  }
}

TEST_CASE("ascend stand-in: sums of collectives are in FP32 and rounded once") {
  const Library library;
  on_ranks(4, [](std::uint32_t rank, HcclComm comm, aclrtStream stream) {
    // 1 + 3 · 2^-8 is 1 if each step rounds to BF16, and 1 + 2^-6 if the sum does.
    std::array<std::uint16_t, 16> values;
    values.fill(rank == 0 ? 0x3F80 : 0x3B80);
    void* data = nullptr;
    CHECK(aclrtMalloc(&data, 32, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
    CHECK(aclrtMemcpy(data, 32, values.data(), 32, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
    CHECK(HcclAllReduce(data, data, 16, HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_SUM, comm, stream) == HCCL_SUCCESS);
    CHECK(aclrtSynchronizeStream(stream) == 0);
    CHECK(aclrtMemcpy(values.data(), 32, data, 32, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
    CHECK(values[5] == 0x3F82);
    CHECK(HcclAllReduce(data, data, 16, HCCL_DATA_TYPE_BFP16, HCCL_REDUCE_PROD, comm, stream) == HCCL_E_NOT_SUPPORT);
    CHECK(aclrtFree(data) == 0);
  });
}

TEST_CASE("ascend stand-in: ranks that disagree are told so") {
  const Library library;
  on_ranks(2, [](std::uint32_t rank, HcclComm comm, aclrtStream stream) {
    const Buffer a(Floats(8, 1.0f));
    CHECK(HcclAllReduce(a.data, a.data, rank == 0 ? 8 : 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream) ==
          HCCL_SUCCESS);
    CHECK(aclrtSynchronizeStream(stream) == ACL_ERROR_RT_AICPU_EXCEPTION);
    HcclResult error = HCCL_SUCCESS;
    CHECK(HcclGetCommAsyncError(comm, &error) == HCCL_SUCCESS);
    CHECK(error == HCCL_E_PARA);
  });
  const std::string text = faults();
  CHECK(has(text, "the ranks do not call the same: HcclAllReduce of 8"));
  CHECK(has(text, "HcclAllReduce of 4"));
}

TEST_CASE("ascend stand-in: communicators and their rules") {
  const Setting slow("delay_us", 20000, 50);
  const Library library;
  HcclRootInfo root{};
  HcclComm comm = nullptr;
  CHECK(HcclCommInitRootInfo(1, &root, 0, &comm) == HCCL_E_PARA);
  CHECK(has(faults(), "not what HcclGetRootInfo wrote"));
  REQUIRE(HcclGetRootInfo(&root) == HCCL_SUCCESS);
  CHECK(HcclCommInitRootInfo(1, &root, 1, &comm) == HCCL_E_PARA);
  CHECK(HcclCommInitRootInfo(1, nullptr, 0, &comm) == HCCL_E_PTR);
  std::size_t before = 0, after = 0, total = 0;
  CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total) == 0);
  REQUIRE(HcclCommInitRootInfo(1, &root, 0, &comm) == HCCL_SUCCESS);
  CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total) == 0);
  CHECK(after < before);  // its buffers
  {
    const Buffer a(Floats(8, 1.0f));
    for (int i = 0; i < 6; ++i)
      CHECK(HcclAllReduce(a.data, a.data, 8, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr) == HCCL_SUCCESS);
    CHECK(HcclCommDestroy(comm) == HCCL_E_AGAIN);
    CHECK(aclrtSynchronizeStream(nullptr) == 0);
    CHECK(HcclAllReduce(nullptr, a.data, 8, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr) == HCCL_E_PTR);
    CHECK(HcclAllReduce(a.data, a.data, 8, HCCL_DATA_TYPE_INT128, HCCL_REDUCE_SUM, comm, nullptr) ==
          HCCL_E_NOT_SUPPORT);
    CHECK(HcclBroadcast(a.data, 8, HCCL_DATA_TYPE_FP32, 1, comm, nullptr) == HCCL_E_PARA);
    CHECK(HcclAllReduce(a.data, static_cast<char*>(a.data) + 4, 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm,
                        nullptr) == HCCL_E_PARA);
    CHECK(has(faults(), "the buffers overlap"));
  }
  CHECK(HcclCommDestroy(comm) == HCCL_SUCCESS);
  CHECK(HcclCommDestroy(comm) == HCCL_E_PTR);
  CHECK(has(faults(), "HcclCommDestroy"));
  CHECK(std::string(HcclGetErrorString(HCCL_E_AGAIN)) != "");
  // All cards of one process at once.
  std::int32_t devices[2] = {0, 1};
  HcclComm comms[2] = {};
  CHECK(aclrtSetDevice(1) == 0);
  CHECK(HcclCommInitAll(2, devices, comms) == HCCL_SUCCESS);
  for (HcclComm one : comms) CHECK(HcclCommDestroy(one) == HCCL_SUCCESS);
  CHECK(aclrtResetDevice(1) == 0);
  CHECK(aclrtSetDevice(0) == 0);
  CHECK(aclrtResetDevice(0) == 0);
}

TEST_CASE("ascend stand-in: collectives among processes") {
  // With as many devices as the environment says.
  const lora::test::Environment devices("STAND_IN_DEVICES", "3");
  const lora::test::TempFolder folder;
  std::vector<int> results(3, -1);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    threads.emplace_back([&, rank] {
      const std::string command =
          "'" LORA_STAND_IN_RANK "' " + std::to_string(rank) + " 3 " + (folder / "root").native();
      results[rank] = std::system(command.c_str());
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(results == std::vector<int>(3, 0));
}

TEST_CASE("ascend stand-in: collectives of a dry run have any number of ranks") {
  const Setting dry("dry", 1, 0);
  const Library library;
  HcclRootInfo root;
  HcclComm comm = nullptr;
  REQUIRE(HcclGetRootInfo(&root) == HCCL_SUCCESS);
  REQUIRE(HcclCommInitRootInfo(64, &root, 17, &comm) == HCCL_SUCCESS);
  void* data = nullptr;
  REQUIRE(aclrtMalloc(&data, 64 * 1024, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
  standInResetOperators();
  CHECK(HcclAllGather(data, data, 64, HCCL_DATA_TYPE_FP32, comm, nullptr) == HCCL_E_PARA);
  faults();
  CHECK(HcclAllReduce(data, data, 256, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr) == HCCL_SUCCESS);
  double bytes = 0;
  standInOperators(
      [](void* user, const char*, std::uint64_t, double, double one) { *static_cast<double*>(user) += one; }, &bytes);
  CHECK(bytes == 2048);
  CHECK(aclrtFree(data) == 0);
  CHECK(HcclCommDestroy(comm) == HCCL_SUCCESS);
}

}  // namespace stand_in_test
