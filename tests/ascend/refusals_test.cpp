// What is said of each call of the runtime's that fails, and what the library asks the runtime for. One call at a time
// is another than the stand-in's.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lora/ascend/runtime/choice.hpp"
#include "lora/io/files/file.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/stand_in.hpp"
#include "support/temp_folder.hpp"

namespace ascend_refusals_test {

namespace {

using namespace lora;
using namespace lora::test;
using Npu = ascend::Device;
using ascend::DeviceSettings;
using ascend::Toolkit;

/// A function of the runtime's that returns an error without a text, whatever it is given.
template <int error, class... Arguments>
int refuse(Arguments...) {
  return error;
}
template <int error, class... Arguments>
void make_refuse(int (*&function)(Arguments...)) {
  function = refuse<error, Arguments...>;
}

/// The stand-in's toolkit, whose errors have no texts.
struct Silent : Toolkit {
  Silent() {
    runtime.aclGetRecentErrMsg = []() -> const char* { return nullptr; };
  }
};

struct Prepared {
  Prepared() { (void)stand_in_counts(); }  // which says where the libraries are
};

/// What a call on a device says where `change` has been made to its runtime.
std::string said(const std::function<void(ascend::Runtime&)>& change, const std::function<void(Npu&)>& call) {
  Silent toolkit;
  const ascend::Runtime whole = toolkit.runtime;
  std::string text;
  {
    Npu dev(DeviceSettings{.threads = 1}, toolkit);
    change(toolkit.runtime);
    text = message_of<DeviceError>([&] { call(dev); });
    toolkit.runtime = whole;
  }
  return text;
}
std::string not_made(const std::function<void(ascend::Runtime&)>& change) {
  Silent toolkit;
  change(toolkit.runtime);
  return message_of<DeviceError>([&] { const Npu dev(DeviceSettings{.id = 1, .threads = 1}, toolkit); });
}

std::vector<std::int32_t> waits;

}  // namespace

TEST_CASE("ascend refusals: a device that can't be made says which call refused it") {
  const Prepared prepared;
  on_stand_in([] {
    const std::string health = "; npu-smi info shows its health and who uses it; a card serves one container at a time";
    using R = ascend::Runtime;
    CHECK(not_made([](R& r) { make_refuse<7>(r.aclrtGetDeviceCount); }) ==
          "[ascend] the runtime can't count NPUs: error 7; npu-smi info shows whether the driver works");
    CHECK(not_made([](R& r) { make_refuse<8>(r.aclrtSetDevice); }) == "[ascend] NPU 1 can't be used: error 8" + health);
    CHECK(not_made([](R& r) { make_refuse<507033>(r.aclrtSetDevice); }) ==
          "[ascend] NPU 1 can't be used: error 507033; the usual causes are a driver and a toolkit of releases that "
          "don't match, or a card that another container holds: npu-smi info shows the driver's version, the card's "
          "health and who uses it");
    CHECK(not_made([](R& r) { make_refuse<9>(r.aclrtGetCurrentContext); }) ==
          "[ascend] NPU 1 has no context: error 9" + health);
    CHECK(not_made([](R& r) { make_refuse<10>(r.aclrtSetSysParamOpt); }) ==
          "[ascend] NPU 1 does not take a setting: error 10" + health);
    CHECK(not_made([](R& r) { make_refuse<11>(r.aclrtCtxSetSysParamOpt); }) ==
          "[ascend] NPU 1 does not take a setting: error 11" + health);
    CHECK(not_made([](R& r) { make_refuse<12>(r.aclrtSetDeviceSatMode); }) ==
          "[ascend] NPU 1 does not take a setting: error 12" + health);
    CHECK(not_made([](R& r) { make_refuse<13>(r.aclrtGetMemInfo); }) == "[ascend] NPU 1: aclrtGetMemInfo: error 13");
    CHECK(not_made([](R& r) { make_refuse<14>(r.aclrtCreateStream); }) ==
          "[ascend] NPU 1: aclrtCreateStream: error 14");
    const auto of = [](int id) {
      Silent toolkit;
      return message_of<DeviceError>([&] { const Npu dev(DeviceSettings{.id = id}, toolkit); });
    };
    for (const int id : {-1, 2})
      CHECK(of(id) == concat("[ascend] there is no NPU ", id,
                             ": the runtime counts 2; npu-smi info lists what the driver sees, "
                             "ASCEND_RT_VISIBLE_DEVICES may hide some"));
  });
}

TEST_CASE("ascend refusals: each call of a device's names what the runtime refused") {
  const Prepared prepared;
  on_stand_in([] {
    using R = ascend::Runtime;
    struct Case {
      std::function<void(R&)> change;
      std::function<void(Npu&)> call;
      std::string what;
    };
    // Of an event that is there before the runtime refuses.
    const auto after_record = [&](const std::function<void(R&)>& change, const std::function<void(Npu&, Event)>& f) {
      Silent toolkit;
      const R whole = toolkit.runtime;
      Npu dev(DeviceSettings{.threads = 1}, toolkit);
      const Event event = dev.record(Stream::compute);
      change(toolkit.runtime);
      std::string text = message_of<DeviceError>([&] { f(dev, event); });
      toolkit.runtime = whole;
      return text;
    };
    const auto check = [](const Case& one) { CHECK(said(one.change, one.call) == "[ascend] NPU 0: " + one.what); };
    check({[](R& r) { make_refuse<21>(r.aclrtSetCurrentContext); }, [](Npu& dev) { dev.enter(); },
           "aclrtSetCurrentContext: error 21"});
    check({[](R& r) { make_refuse<22>(r.aclrtGetMemInfo); }, [](Npu& dev) { (void)dev.memory(); },
           "aclrtGetMemInfo: error 22"});
    check({[](R& r) { make_refuse<23>(r.aclrtMallocHost); }, [](Npu& dev) { (void)dev.allocate_host(100); },
           "aclrtMallocHost: error 23"});
    for (const int full : {207001, 207018})
      CHECK(said(
                [&](R& r) {
                  full == 207001 ? make_refuse<207001>(r.aclrtMallocHost) : make_refuse<207018>(r.aclrtMallocHost);
                },
                [](Npu& dev) { (void)dev.allocate_host(100); }) ==
            concat("[ascend] NPU 0: the host gives no page-locked memory, 100 bytes were asked for: error ", full,
                   "; end other programs that take the host's memory"));
    CHECK(said([](R& r) { make_refuse<24>(r.aclrtMallocAlign32); }, [](Npu& dev) { (void)dev.allocate(100); }) ==
          "[ascend] NPU 0 gives no memory, 100 bytes were asked for: error 24");
    CHECK(said([](R& r) { make_refuse<207018>(r.aclrtMallocAlign32); }, [](Npu& dev) { (void)dev.allocate(100); })
              .starts_with("[ascend] NPU 0 is out of memory: 100 bytes were asked for, "));
    check({[](R& r) { make_refuse<25>(r.aclrtCreateEventExWithFlag); },
           [](Npu& dev) { (void)dev.record(Stream::copy); }, "aclrtCreateEventExWithFlag: error 25"});
    check({[](R& r) { make_refuse<26>(r.aclrtRecordEvent); }, [](Npu& dev) { (void)dev.record(Stream::copy); },
           "aclrtRecordEvent: error 26"});
    const auto copy = [](const std::function<void(Npu&, float*, float*)>& f) {
      Silent toolkit;
      const R whole = toolkit.runtime;
      Npu dev(DeviceSettings{.threads = 1}, toolkit);
      auto* const there = static_cast<float*>(dev.allocate(64));
      auto* const here = static_cast<float*>(dev.allocate_host(64));
      make_refuse<27>(toolkit.runtime.aclrtMemcpyAsync);
      std::string text = message_of<DeviceError>([&] { f(dev, there, here); });
      toolkit.runtime = whole;
      dev.free_host(here, 64);
      dev.free(there, 64);
      return text;
    };
    CHECK(copy([](Npu& dev, float* there, float* here) { dev.copy_from_host(there, here, 64); }) ==
          "[ascend] NPU 0: a copy to the device: error 27");
    CHECK(copy([](Npu& dev, float* there, float* here) { dev.copy_to_host(here, there, 64); }) ==
          "[ascend] NPU 0: a copy to the host: error 27");
    CHECK(copy([](Npu& dev, float* there, float*) { dev.copy_on_device(there, there + 8, 32); }) ==
          "[ascend] NPU 0: a copy on the device: error 27");
    // Of nothing nothing is asked.
    CHECK(copy([](Npu& dev, float* there, float* here) {
            dev.copy_from_host(there, here, 0);
            dev.copy_to_host(here, there, 0);
            dev.start_copy_to_host(here, there, 0, Stream::copy);
            dev.copy_on_device(there, there + 8, 0);
          }) == "nothing was thrown");
    CHECK(after_record([](R& r) { make_refuse<28>(r.aclrtStreamWaitEvent); },
                       [](Npu& dev, Event event) { dev.wait(Stream::copy, event); }) ==
          "[ascend] NPU 0: aclrtStreamWaitEvent: error 28");
    CHECK(after_record([](R& r) { make_refuse<29>(r.aclrtQueryEventStatus); },
                       [](Npu& dev, Event event) { (void)dev.is_done(event); }) ==
          "[ascend] NPU 0: aclrtQueryEventStatus: error 29");
    CHECK(after_record([](R& r) { make_refuse<30>(r.aclrtEventElapsedTime); },
                       [](Npu& dev, Event event) { (void)dev.nanoseconds(event, event); }) ==
          "[ascend] NPU 0: aclrtEventElapsedTime: error 30");
    // Whoever waits and is refused, gives up.
    const std::string failed =
        "[ascend] NPU 0: work that was queued before has failed: error 31; npu-smi info shows "
        "its health";
    CHECK(after_record([](R& r) { make_refuse<31>(r.aclrtSynchronizeEventWithTimeout); },
                       [](Npu& dev, Event event) { dev.wait(event); }) == failed);
    CHECK(said([](R& r) { make_refuse<31>(r.aclrtSynchronizeStreamWithTimeout); },
               [](Npu& dev) { dev.synchronize(); }) == failed);
    CHECK(said([](R& r) { make_refuse<507046>(r.aclrtSynchronizeStreamWithTimeout); },
               [](Npu& dev) { dev.synchronize(); }) ==
          "[ascend] NPU 0 has not ended its work within 1800 s: error 507046; LORA_ASCEND_TIMEOUT sets how many "
          "seconds are waited");
  });
}

TEST_CASE("ascend refusals: waits last half an hour, or as long as is asked for and the runtime counts") {
  const Prepared prepared;
  on_stand_in([] {
    Silent toolkit;
    const ascend::Runtime whole = toolkit.runtime;
    Npu dev(DeviceSettings{.threads = 1}, toolkit);
    const Event event = dev.record(Stream::compute);
    toolkit.runtime.aclrtSynchronizeStreamWithTimeout = [](ascend::aclrtStream, std::int32_t milliseconds) {
      waits.push_back(milliseconds);
      return 0;
    };
    toolkit.runtime.aclrtSynchronizeEventWithTimeout = [](ascend::aclrtEvent, std::int32_t milliseconds) {
      waits.push_back(-milliseconds);
      return 0;
    };
    const auto waited = [&] {
      waits.clear();
      dev.synchronize();
      dev.wait(event);
      return waits;
    };
    const auto both = [](std::int32_t milliseconds) {
      return std::vector<std::int32_t>{milliseconds, milliseconds, -milliseconds};
    };
    CHECK(waited() == both(1800000));
    dev.wait_at_least(2);
    CHECK(waited() == both(1800000));
    dev.wait_at_least(2000.5);
    CHECK(waited() == both(2000500));
    dev.wait_at_least(1e12);
    CHECK(waited() == both(2000000000));
    toolkit.runtime = whole;
    dev.release(event);
  });
}

TEST_CASE("ascend refusals: what a device says of itself, and how modules cut their work on it") {
  const Prepared prepared;
  on_stand_in([] {
    const DeviceSettings settings;
    CHECK(settings.id == 0);
    CHECK(settings.deterministic);
    CHECK(settings.threads == 0);
    CHECK(settings.chunks.decoded == std::int64_t{1} << 25);
    CHECK(settings.chunks.scaled == std::int64_t{1} << 24);
    CHECK(settings.chunks.squared == std::int64_t{1} << 24);
    Silent toolkit;
    Npu dev(DeviceSettings{.id = 1, .threads = 3}, toolkit);
    CHECK(dev.settings().threads == 3);
    CHECK(dev.name() == "ascend:1");
    CHECK(dev.describe() == "Ascend910B3, NPU 1");
    CHECK(ascend::describe_products(dev) == "the operators of CANN, interface 1.13.0");
    CHECK(Npu(5).settings().threads == 5);
    CHECK(Npu(5).settings().id == 0);
    toolkit.runtime.aclrtGetSocName = []() -> const char* { return nullptr; };
    make_refuse<7>(toolkit.runtime.aclrtGetVersion);
    CHECK(dev.describe() == "an NPU without a name, NPU 1");
    CHECK(ascend::describe_products(dev) == "the operators of CANN");
    CHECK(toolkit.version() == "");
    make_refuse<7>(toolkit.runtime.aclrtGetDeviceCount);
    CHECK(toolkit.device_count() == 0);
    const Tiling tiling = Npu::tiling();
    CHECK(tiling.rows == Index{1} << 40);
    CHECK(tiling.head_rows == 512);
    CHECK(tiling.head_columns == Index{1} << 40);
    CHECK(tiling.fold_ratio == std::numeric_limits<double>::infinity());
    CHECK(tiling.joins_projections);
    for (const DType read : {DType::f32, DType::bf16, DType::f16, DType::q8_0}) CHECK(Npu::decodes(read));
    for (const DType other : {DType::f64, DType::q4_0, DType::q6_k}) CHECK_FALSE(Npu::decodes(other));
    CHECK(ascend::preferred_precision(dev, DType::f64) == Precision::float32);
    CHECK(ascend::preferred_precision(dev, DType::f32) == Precision::float32);
    CHECK(ascend::preferred_precision(dev, DType::f16) == Precision::float16);
    CHECK(ascend::preferred_precision(dev, DType::bf16) == Precision::bfloat16);
    CHECK(ascend::preferred_precision(dev, DType::q8_0) == Precision::bfloat16);
  });
}

TEST_CASE("ascend refusals: a device that is given up says why, the first time's reason again and again") {
  const Prepared prepared;
  on_stand_in([] {
    Npu dev;
    dev.abandon("others have gone");
    dev.abandon("and more");
    CHECK(message_of<DeviceError>([&] { dev.enter(); }) == "[ascend] NPU 0 can't be used any more: others have gone");
  });
}

TEST_CASE("ascend refusals: the vendor's texts become one line, and an error without one is its number") {
  ascend::Runtime runtime;
  CHECK(runtime.describe(107001) == "error 107001");
  runtime.aclGetRecentErrMsg = []() -> const char* { return nullptr; };
  CHECK(runtime.describe(107001) == "error 107001");
  runtime.aclGetRecentErrMsg = []() -> const char* { return "\n  E1:\tno such\r\n\t device \n here  \n"; };
  CHECK(runtime.describe(-2) == "error -2 (E1: no such device here)");
}

TEST_CASE("ascend refusals: errors that end a device's work, and those that do not") {
  for (const int ends : {507000, 507015, 507999, 361001}) CHECK(ascend::ends_work(ends));
  for (const int goes_on : {0, 506999, 508000, 361000, 361002, 207001, 161002, -1})
    CHECK_FALSE(ascend::ends_work(goes_on));
}

TEST_CASE("ascend refusals: each type of elements has its name and its bytes") {
  using ascend::aclDataType;
  struct Row {
    aclDataType type;
    const char* name;
    std::int64_t bytes;
  };
  for (const Row& row : {Row{ascend::ACL_FLOAT, "float32", 4},
                         {ascend::ACL_FLOAT16, "float16", 2},
                         {ascend::ACL_INT8, "int8", 1},
                         {ascend::ACL_INT32, "int32", 4},
                         {ascend::ACL_UINT8, "uint8", 1},
                         {ascend::ACL_INT64, "int64", 8},
                         {ascend::ACL_DOUBLE, "float64", 8},
                         {ascend::ACL_BOOL, "bool", 1},
                         {ascend::ACL_BF16, "bfloat16", 2}}) {
    CHECK(ascend::name_of(row.type) == row.name);
    CHECK(ascend::bytes_of(row.type) == row.bytes);
  }
  CHECK(ascend::name_of(static_cast<aclDataType>(77)) == "?");
  CHECK(ascend::bytes_of(static_cast<aclDataType>(77)) == 0);
  CHECK(ascend::acl_type<float> == ascend::ACL_FLOAT);
  CHECK(ascend::acl_type<bf16> == ascend::ACL_BF16);
  CHECK(ascend::acl_type<f16> == ascend::ACL_FLOAT16);
  CHECK(ascend::acl_type<std::int32_t> == ascend::ACL_INT32);
  CHECK(ascend::acl_type<std::int64_t> == ascend::ACL_INT64);
  CHECK(ascend::acl_type<std::int8_t> == ascend::ACL_INT8);
  CHECK(ascend::acl_type<std::uint8_t> == ascend::ACL_UINT8);
  const ascend::Operand empty = ascend::empty_operand(ascend::ACL_BF16);
  CHECK(empty.extent() == 0);
  CHECK(empty.text() == "bfloat16 (0)");
  CHECK(empty.data == nullptr);
  const ascend::Operand some(nullptr, ascend::ACL_INT64, {3, 2, 5}, {20, 7, 1});
  CHECK(some.extent() == 2 * 20 + 7 + 4 + 1);
  CHECK(some.text() == "int64 (3, 2, 5)");
}

namespace {

int tensors_made = 0, tensors_destroyed = 0;

}  // namespace

TEST_CASE("ascend refusals: tensors that can't be made are told, and those before them in a list go") {
  const Prepared prepared;
  on_stand_in([] {
    Silent toolkit;
    const ascend::Objects whole = toolkit.objects;
    Npu dev(DeviceSettings{.threads = 1}, toolkit);
    Tensor<Npu, bf16> x(dev, 2, 16);
    Tensor<Npu, float> y(dev, 3, 16);
    tensors_made = tensors_destroyed = 0;
    static decltype(whole.aclDestroyTensor) destroy = whole.aclDestroyTensor;
    static decltype(whole.aclCreateTensor) create = whole.aclCreateTensor;
    toolkit.objects.aclCreateTensor = [](const std::int64_t* dims, std::uint64_t rank, ascend::aclDataType type,
                                         const std::int64_t* strides, std::int64_t offset, ascend::aclFormat format,
                                         const std::int64_t* storage, std::uint64_t storage_rank,
                                         void* data) -> ascend::aclTensor* {
      if (type == ascend::ACL_FLOAT) return nullptr;
      ++tensors_made;
      return create(dims, rank, type, strides, offset, format, storage, storage_rank, data);
    };
    toolkit.objects.aclDestroyTensor = [](const ascend::aclTensor* tensor) {
      ++tensors_destroyed;
      return destroy(tensor);
    };
    const auto& operators = toolkit.operators;
    const auto cat = [&](const std::vector<ascend::Operand>& list) {
      return message_of<DeviceError>([&] { ascend::launch(dev, operators.cat, list, std::int64_t{0}, x.view()); });
    };
    CHECK(cat({x.view(), x.view(), y.view()}) == "[ascend] no tensor can be made of float32 (3, 16)");
    // Arguments are made in an order of the compiler's: the result may be there or not.
    CHECK(tensors_made >= 2);
    CHECK(tensors_destroyed == tensors_made);
    toolkit.objects.aclCreateTensorList = [](const ascend::aclTensor* const*, std::uint64_t) -> ascend::aclTensorList* {
      return nullptr;
    };
    tensors_made = tensors_destroyed = 0;
    CHECK(cat({x.view(), x.view()})
              .starts_with("[ascend] NPU 0: the operator Cat of bfloat16 (2, 16), bfloat16 (2, "
                           "16), bfloat16 (2, 16): error "));
    CHECK(tensors_made == 3);
    CHECK(tensors_destroyed == 3);
    toolkit.objects = whole;
  });
}

TEST_CASE("ascend refusals: an operator that is only asked says no, unless the device has failed") {
  const Prepared prepared;
  on_stand_in([] {
    Silent toolkit;
    Npu dev(DeviceSettings{.threads = 1}, toolkit);
    Tensor<Npu, bf16> x(dev, 16, 16), y(dev, 16, 16);
    auto& mm = toolkit.operators.mm;
    const auto takes = [&] { return ascend::takes(dev, mm, x.view(), x.view(), y.view(), ascend::KEEP_DTYPE); };
    CHECK(takes());
    make_refuse<161002>(mm.sizes);
    CHECK_FALSE(takes());
    make_refuse<507015>(mm.sizes);
    CHECK(message_of<DeviceError>([&] { (void)takes(); }) == "[ascend] NPU 0: Mm: error 507015");
    CHECK(message_of<DeviceError>([&] { dev.enter(); }) == "[ascend] NPU 0 can't be used any more: error 507015");
  });
}

TEST_CASE("ascend refusals: each operator has the family that reports name") {
  const Prepared prepared;
  const Toolkit toolkit;
  std::string families, before;
  for (const ascend::OperatorInfo& one : toolkit.operators_found) {
    CHECK(one.there);
    CHECK_FALSE(one.left_out);
    CHECK(one.fallback == (one.name == "RotaryPositionEmbedding" ? "Mul and InplaceAddcmul"
                           : one.name == "RingAttentionUpdate"   ? "sequences that share nothing"
                           : one.name.starts_with("GeGluV3")     ? "models whose gates are SiLU"
                                                                 : ""));
    families += concat(one.family == before ? " " : concat(families.empty() ? "" : "\n", one.family, ": "), one.name);
    before = one.family;
  }
  CHECK(families ==
        "products: Mm InplaceAddmm\n"
        "elementwise: InplaceAdd Mul\n"
        "quantized weights: InplaceMul\n"
        "elementwise: Muls InplaceAddcmul InplaceCopy InplaceZero InplaceFillScalar Slice Cat InplaceIndexCopy\n"
        "dropout: DropoutDoMask\n"
        "norms: RmsNorm RmsNormGrad\n"
        "rotary embedding: RotaryPositionEmbedding\n"
        "activation: SwiGlu SwiGluGrad\n"
        "activation by GELU: GeGluV3 GeGluV3Backward\n"
        "attention: FlashAttentionVarLenScore FlashAttentionUnpaddingScoreGrad\n"
        "attention over trees: RingAttentionUpdate\n"
        "embedding: Embedding EmbeddingDenseBackward\n"
        "loss: CrossEntropyLoss CrossEntropyLossGrad Amax Gather\n"
        "optimizer: ApplyAdamWV2\n"
        "reductions: ReduceSum");
}

TEST_CASE("ascend refusals: of libraries that can't be opened the reason is told of one that is there") {
  const TempFolder temp;
  const std::string folder = temp.path().native();
  io::write_file(temp / "libbroken.so", std::string_view("no library"));
  io::write_file(temp / "libworse.so", std::string_view("none either"));
  constexpr std::string_view absent[] = {"libabsent.so", "libnone.so"}, both[] = {"libabsent.so", "libbroken.so"},
                             broken[] = {"libbroken.so", "libworse.so", "libabsent.so"}, nothing[] = {"libabsent.so"};
  {
    const Environment named("LORA_ASCEND_LIBRARIES", folder);
    const ascend::Libraries none(absent), some(both), two(broken);
    CHECK(none.reason().starts_with(folder + "/libabsent.so: cannot open shared object file: No such file"));
    CHECK_FALSE(none.broken());
    CHECK(none.expected());  // somebody has named the folder
    CHECK(some.reason().starts_with(folder + "/libbroken.so: "));
    CHECK(some.broken());
    CHECK(two.reason().starts_with(folder + "/libbroken.so: "));
    CHECK(two.names() == "");
    CHECK((two.find<int()>("main") == nullptr));
  }
  {
    const Environment unnamed("LORA_ASCEND_LIBRARIES", "");
    const ascend::Libraries none(nothing);
    CHECK_FALSE(none.any());
    CHECK_FALSE(none.expected());
    CHECK(none.reason().starts_with("libabsent.so: cannot open shared object file: No such file"));
  }
  // What is a file in the first folder that has the name is what counts; the folder here is an empty name.
  const Environment unnamed("LORA_ASCEND_LIBRARIES", "");
  io::create_folder(temp / "first");
  io::create_folder(temp / "second");
  io::create_folder(temp / "second/libabsent.so");
  const auto reason = [&](const std::string& folders) {
    const Environment path("LD_LIBRARY_PATH", folders);
    return ascend::Libraries(nothing).reason();
  };
  const std::string first = folder + "/first", second = folder + "/second",
                    refused = second + "/libabsent.so is no file";
  CHECK(reason(first + ":" + second) == refused);
  CHECK(reason(first + ";" + second + ":/nowhere") == refused);
  CHECK(reason(second) == refused);
  io::write_file(temp / "first/libabsent.so", std::string_view("a file"));
  CHECK(reason(first + ":" + second) != refused);
  CHECK(reason(second + ":" + first) == refused);
}

TEST_CASE("ascend refusals: a toolkit without operators says what it lacks, and device auto is the CPU") {
  const Prepared prepared;
  const TempFolder temp;
  std::filesystem::create_symlink(io::Path(LORA_STAND_IN) / "libascendcl.so", temp / "libascendcl.so");
  const std::string folder = temp.path().native();
  {
    const Environment named("LORA_ASCEND_LIBRARIES", folder);
    const Toolkit toolkit;
    CHECK(toolkit.runs());
    CHECK(toolkit.there());
    CHECK(toolkit.names() == folder + "/libascendcl.so");
    CHECK(toolkit.operator_names() == "");
    CHECK(toolkit.operator_problem().starts_with(folder + "/libnnopbase.so: cannot open shared object file"));
    CHECK(toolkit.operators_advice() == "not opened: " + toolkit.operator_problem());
    CHECK(toolkit.missing_operators() == "Mm, InplaceAddmm, InplaceAdd, Mul and 24 more");
    const Quiet quiet;
    CHECK_FALSE(ascend::choose({}, true, "auto", toolkit));
    CHECK(quiet.text ==
          "device auto: there is an Ascend toolkit, but its operators can't be used; computing on the CPU ('lora "
          "doctor' tells more)\n");
    CHECK(message_of<DeviceError>([&] { (void)ascend::choose({}, true, "ascend910b3", toolkit); }) ==
          "key device_type: given ascend910b3, but there is an Ascend toolkit, but its operators can't be used");
  }
  std::filesystem::create_symlink(io::Path(LORA_STAND_IN) / "libnnopbase.so", temp / "libnnopbase.so");
  {
    const Environment named("LORA_ASCEND_LIBRARIES", folder);
    const Toolkit toolkit;
    CHECK(toolkit.operator_problem() == "");
    CHECK(toolkit.operators_advice().starts_with("not opened: " + folder + "/libopapi_math.so: cannot open"));
  }
  io::write_file(temp / "libopapi_nn.so", std::string_view("no library"));
  {
    const Environment named("LORA_ASCEND_LIBRARIES", folder);
    CHECK(Toolkit().operators_advice().starts_with("not opened: " + folder + "/libopapi_nn.so: "));
  }
  CHECK(Toolkit().operators_advice() == "CANN 8.1 and newer have them");
  const Environment nowhere("LORA_ASCEND_LIBRARIES", "/nowhere");
  Toolkit none;
  CHECK_FALSE(none.there());
  CHECK(none.expected());
  CHECK(none.names() == "");
  CHECK(none.version() == "");
  CHECK(none.package_version() == "");
  CHECK(none.device_count() == 0);
  CHECK(none.advice() == "install driver and toolkit (CANN) and source its set_env.sh");
  CHECK(message_of<DeviceError>([&] { const Npu dev(DeviceSettings{}, none); }) ==
        "[ascend] there is no toolkit to run on an NPU with: " + none.problem() +
            "; install driver and toolkit (CANN) and source its set_env.sh, or use device cpu");
  // A device that is named is chosen all the same, and refused when it is made.
  CHECK(ascend::choose(std::vector<int>{7}, false, "nonsense", none)->id == 7);
}

TEST_CASE("ascend refusals: an NPU without a name is of no kind that is asked for") {
  const Prepared prepared;
  Silent toolkit;
  toolkit.runtime.aclrtGetSocName = []() -> const char* { return nullptr; };
  CHECK(ascend::wrong_kind("auto", toolkit) == "");
  CHECK(ascend::wrong_kind("ascend910b3", toolkit) ==
        "key device_type: given ascend910b3, but the NPUs here don't tell their kind");
  make_refuse<7>(toolkit.runtime.aclrtGetDeviceCount);
  const Quiet quiet;
  CHECK_FALSE(ascend::choose({}, true, "auto", toolkit));
  CHECK(quiet.text ==
        "device auto: there is an Ascend toolkit, but no NPU; computing on the CPU ('lora doctor' tells more)\n");
}

}  // namespace ascend_refusals_test
