// What is called of the vendor's is declared as in its headers: an extract of tables of these is committed.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lora/ascend/runtime/hccl.hpp"
#include "lora/ascend/runtime/operators.hpp"
#include "lora/ascend/runtime/runtime.hpp"

namespace declarations_test {

using namespace lora;

namespace {

/// A type as the vendor's headers write it, without const of a value that is passed.
template <class T>
std::string written() {
  const std::pair<bool, const char*> names[] = {
      {std::is_same_v<T, int>, "int"},
      {std::is_same_v<T, bool>, "bool"},
      {std::is_same_v<T, float>, "float"},
      {std::is_same_v<T, double>, "double"},
      {std::is_same_v<T, std::int8_t>, "int8_t"},
      {std::is_same_v<T, std::int64_t>, "int64_t"},
      {std::is_same_v<T, std::uint32_t>, "uint32_t"},
      {std::is_same_v<T, std::uint64_t>, "uint64_t"},  // size_t is the same type
      {std::is_same_v<T, char*>, "char *"},
      {std::is_same_v<T, const char*>, "const char *"},
      {std::is_same_v<T, float*>, "float *"},
      {std::is_same_v<T, int*>, "int *"},
      {std::is_same_v<T, std::int64_t*>, "int64_t *"},
      {std::is_same_v<T, std::uint32_t*>, "uint32_t *"},
      {std::is_same_v<T, std::uint64_t*>, "uint64_t *"},
      {std::is_same_v<T, const std::int64_t*>, "const int64_t *"},
      {std::is_same_v<T, void*>, "void *"},
      {std::is_same_v<T, void**>, "void **"},
      {std::is_same_v<T, const void*>, "const void *"},
      {std::is_same_v<T, ascend::aclTensor*>, "aclTensor *"},
      {std::is_same_v<T, const ascend::aclTensor*>, "const aclTensor *"},
      {std::is_same_v<T, const ascend::aclTensor* const*>, "const aclTensor *const *"},
      {std::is_same_v<T, ascend::aclScalar*>, "aclScalar *"},
      {std::is_same_v<T, const ascend::aclScalar*>, "const aclScalar *"},
      {std::is_same_v<T, ascend::aclIntArray*>, "aclIntArray *"},
      {std::is_same_v<T, const ascend::aclIntArray*>, "const aclIntArray *"},
      {std::is_same_v<T, ascend::aclTensorList*>, "aclTensorList *"},
      {std::is_same_v<T, const ascend::aclTensorList*>, "const aclTensorList *"},
      {std::is_same_v<T, ascend::aclOpExecutor*>, "aclOpExecutor *"},
      {std::is_same_v<T, ascend::aclOpExecutor**>, "aclOpExecutor **"},
      {std::is_same_v<T, ascend::aclDataType>, "aclDataType"},
      {std::is_same_v<T, ascend::aclFormat>, "aclFormat"},
      {std::is_same_v<T, ascend::aclrtMemAttr>, "aclrtMemAttr"},
      {std::is_same_v<T, ascend::aclDeviceInfo>, "aclDeviceInfo"},
      {std::is_same_v<T, ascend::aclCANNPackageName>, "aclCANNPackageName"},
      {std::is_same_v<T, ascend::aclCANNPackageVersion*>, "aclCANNPackageVersion *"},
      {std::is_same_v<T, ascend::aclrtMemMallocPolicy>, "aclrtMemMallocPolicy"},
      {std::is_same_v<T, ascend::aclrtMemcpyKind>, "aclrtMemcpyKind"},
      {std::is_same_v<T, ascend::aclSysParamOpt>, "aclSysParamOpt"},
      {std::is_same_v<T, ascend::aclrtFloatOverflowMode>, "aclrtFloatOverflowMode"},
      {std::is_same_v<T, ascend::aclrtEventRecordedStatus*>, "aclrtEventRecordedStatus *"},
      {std::is_same_v<T, ascend::aclrtStreamStatus*>, "aclrtStreamStatus *"},
      {std::is_same_v<T, ascend::HcclResult>, "HcclResult"},
      {std::is_same_v<T, ascend::HcclResult*>, "HcclResult *"},
      {std::is_same_v<T, ascend::HcclRootInfo*>, "HcclRootInfo *"},
      {std::is_same_v<T, const ascend::HcclRootInfo*>, "const HcclRootInfo *"},
      {std::is_same_v<T, ascend::HcclSendRecvItem*>, "HcclSendRecvItem *"},
      {std::is_same_v<T, ascend::HcclDataType>, "HcclDataType"},
      {std::is_same_v<T, const ascend::aclrtPhysicalMemProp*>, "const aclrtPhysicalMemProp *"},
  };
  for (const auto& [same, name] : names)
    if (same) return name;
  return "a type without a name here";
}

/// The vendor's name of a type in that of what it stands for.
std::string resolved(std::string type) {
  if (type.starts_with("const ") && type.find('*') == type.npos) type = type.substr(6);
  const std::map<std::string, std::string> aliases = {
      {"int32_t", "int"},
      {"int32_t *", "int *"},
      {"aclrtStream", "void *"},
      {"aclrtStream *", "void **"},
      {"aclrtEvent", "void *"},
      {"aclrtEvent *", "void **"},
      {"aclrtContext", "void *"},
      {"aclrtContext *", "void **"},
      {"aclrtDrvMemHandle", "void *"},
      {"aclrtDrvMemHandle *", "void **"},
      {"HcclComm", "void *"},
      {"HcclComm *", "void **"},
      {"size_t", "uint64_t"},
      {"size_t *", "uint64_t *"},
  };
  const auto found = aliases.find(type);
  return found == aliases.end() ? type : found->second;
}

template <class R, class... P>
std::vector<std::string> signature_of(R (*)(P...)) {
  return {written<R>(), written<P>()...};
}

/// The committed extract: result and parameters of each function.
std::map<std::string, std::vector<std::string>> declared() {
  std::map<std::string, std::vector<std::string>> functions;
  std::ifstream file(LORA_FIXTURES "/ascend_abi.tsv");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    std::getline(fields, name, '\t');
    for (std::string field; std::getline(fields, field, '\t');) functions[name].push_back(resolved(field));
  }
  return functions;
}

template <class Table>
void check_table(Table table, std::size_t& count) {
  const auto functions = declared();
  table.for_each([&](const char* name, auto& function) {
    CAPTURE(name);
    ++count;
    REQUIRE(functions.contains(name));
    CHECK(signature_of(function) == functions.at(name));
  });
}

}  // namespace

TEST_CASE("ascend: functions of the runtime, of objects and of HCCL are declared as in the vendor's headers") {
  std::size_t count = 0;
  check_table(ascend::Runtime(), count);
  CHECK(count * sizeof(void*) == sizeof(ascend::Runtime));
  count = 0;
  check_table(ascend::Objects(), count);
  CHECK(count * sizeof(void*) == sizeof(ascend::Objects));
  count = 0;
  check_table(ascend::HcclFunctions(), count);
  CHECK(count * sizeof(void*) == sizeof(ascend::HcclFunctions));
  CHECK(signature_of(static_cast<ascend::aclsysGetCANNVersion*>(nullptr)) == declared().at("aclsysGetCANNVersion"));
}

TEST_CASE("ascend: every operator is declared as in the vendor's headers, or has a fallback, and each once") {
  const auto functions = declared();
  std::set<std::string_view> names;
  ascend::Operators operators;
  std::size_t bytes = 0;
  operators.for_each([&]<class... P>(ascend::Operator<P...>& one) {
    bytes += sizeof one;
    const std::string name = concat("aclnn", one.name);
    CAPTURE(name);
    CHECK(names.insert(one.name).second);
    const bool there = functions.contains(name) && functions.contains(name + "GetWorkspaceSize");
    CHECK((there || !one.fallback.empty()));
    if (!there) return;
    CHECK(signature_of(one.sizes) == functions.at(name + "GetWorkspaceSize"));
    CHECK(signature_of(one.run) == functions.at(name));
  });
  CHECK(bytes == sizeof operators);
}

TEST_CASE("ascend: constants and structures are those of the vendor's headers") {
  const auto table = declared();
  const auto check = [&](const std::string& name, long long value) {
    CAPTURE(name);
    REQUIRE(table.contains(name));
    CHECK(table.at(name) == std::vector<std::string>{std::to_string(value)});
  };
#define LORA_CHECK_CONSTANT(name) check(#name, ascend::name)
  LORA_CHECK_CONSTANT(ACL_FLOAT);
  LORA_CHECK_CONSTANT(ACL_FLOAT16);
  LORA_CHECK_CONSTANT(ACL_INT8);
  LORA_CHECK_CONSTANT(ACL_INT32);
  LORA_CHECK_CONSTANT(ACL_UINT8);
  LORA_CHECK_CONSTANT(ACL_INT64);
  LORA_CHECK_CONSTANT(ACL_DOUBLE);
  LORA_CHECK_CONSTANT(ACL_BOOL);
  LORA_CHECK_CONSTANT(ACL_BF16);
  LORA_CHECK_CONSTANT(ACL_FORMAT_ND);
  LORA_CHECK_CONSTANT(ACL_HBM_MEM);
  LORA_CHECK_CONSTANT(ACL_HBM_MEM_HUGE);
  LORA_CHECK_CONSTANT(ACL_DEVICE_INFO_AI_CORE_NUM);
  LORA_CHECK_CONSTANT(ACL_DEVICE_INFO_VECTOR_CORE_NUM);
  LORA_CHECK_CONSTANT(ACL_MEM_MALLOC_HUGE_FIRST);
  LORA_CHECK_CONSTANT(ACL_MEMCPY_HOST_TO_DEVICE);
  LORA_CHECK_CONSTANT(ACL_MEMCPY_DEVICE_TO_HOST);
  LORA_CHECK_CONSTANT(ACL_MEMCPY_DEVICE_TO_DEVICE);
  LORA_CHECK_CONSTANT(ACL_EVENT_RECORDED_STATUS_NOT_READY);
  LORA_CHECK_CONSTANT(ACL_EVENT_RECORDED_STATUS_COMPLETE);
  LORA_CHECK_CONSTANT(ACL_STREAM_STATUS_COMPLETE);
  LORA_CHECK_CONSTANT(ACL_STREAM_STATUS_NOT_READY);
  LORA_CHECK_CONSTANT(ACL_OPT_DETERMINISTIC);
  LORA_CHECK_CONSTANT(ACL_RT_OVERFLOW_MODE_INFNAN);
  LORA_CHECK_CONSTANT(ACL_PKG_NAME_CANN);
  LORA_CHECK_CONSTANT(ACL_MEM_HANDLE_TYPE_NONE);
  LORA_CHECK_CONSTANT(ACL_MEM_ALLOCATION_TYPE_PINNED);
  LORA_CHECK_CONSTANT(ACL_MEM_LOCATION_TYPE_DEVICE);
#undef LORA_CHECK_CONSTANT
  check("sizeof aclrtPhysicalMemProp", sizeof(ascend::aclrtPhysicalMemProp));
  check("sizeof aclCANNPackageVersion", sizeof(ascend::aclCANNPackageVersion));
  check("sizeof aclrtMemLocation", sizeof(ascend::aclrtMemLocation));
  static_assert(sizeof(ascend::aclDataType) == 4 && sizeof(ascend::aclrtMemcpyKind) == 4);
}

}  // namespace declarations_test
