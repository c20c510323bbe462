#include "lora/forecast/report.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "lora/io/formats/json.hpp"

namespace forecast_report_test {

using namespace lora;
using namespace lora::forecast;

namespace {

constexpr double gib = 0x1p30;

/// Of which each part has its own size.
train::MemoryPlan plan() {
  train::MemoryPlan plan;
  plan.needs = {4 * gib, 1 * gib, 2 * gib};
  plan.trained.masters = 0.5 * gib;
  plan.held = 0.75 * gib;
  plan.recomputed = 3;
  return plan;
}

RunForecast forecast_of(double seconds, const train::MemoryPlan& memory = plan()) {
  RunForecast forecast;
  forecast.step.sequences = 8;
  forecast.step.tokens = forecast.step.rows = 12345.5;
  forecast.step.micro_batches = 2.25;
  forecast.step.work = {.products = 3e12, .attention = 1e12, .moved = 9e12};
  forecast.step.time = {seconds, "memory"};
  forecast.memory = memory;
  forecast.fits = true;
  return forecast;
}

Report report_of(const RunForecast& forecast) {
  return {.model = "a model",
          .device = "a device",
          .data = " of x",
          .device_bytes = 16 * gib,
          .host_bytes = 64 * gib,
          .forecast = forecast,
          .layers = 4};
}

Strategy way(Index tokens, double seconds, double weights, bool fits = true) {
  train::MemoryPlan memory;
  memory.needs = {weights * gib, 0, 0};
  Strategy one{tokens, false, "none", 0, forecast_of(seconds, memory)};
  one.forecast.fits = fits;
  return one;
}

}  // namespace

TEST_CASE(
    "forecast report: a page has a line for each fact, and a row for each part that is more than half a mebibyte") {
  RunForecast forecast = forecast_of(0.5);
  const std::string begin =
      "model    a model\ndevice   a device\nranks    1, which holds all of it\n"
      "step     8 sequences of x, 12,346 tokens in 2.25 micro-batches; 4 TFLOP\n"
      "time     about 0.5 s a step, 24,691 tokens/s; most of it goes to memory\n";
  CHECK(text_of(report_of(forecast)) == begin +
                                            "memory                        GiB\n"
                                            "         weights             4.00\n"
                                            "         what trains         0.50\n"
                                            "         saved               1.00\n"
                                            "         workspace           2.00\n"
                                            "         program             0.25\n"
                                            "         in all              7.75\n"
                                            "         with gradient checkpointing on 3 of 4 layers\n"
                                            "fits     yes, in 16.0 GiB\n");

  forecast.memory->host = train::HostMemory{.weights = 5 * gib, .optimizer = 6 * gib};
  forecast.memory->recomputed = 1;
  forecast.memory->before = {0, 3 * gib, 0};
  forecast.memory->needs.workspace = 0x1p19 - 1;
  forecast.fits = false;
  forecast.advice = "it needs more";
  Report report = report_of(forecast);
  report.has_host = true;
  report.layers = 1;
  CHECK(text_of(report) == begin +
                               "memory                GiB  device     host\n"
                               "         weights             4.00     5.00\n"
                               "         what trains         0.50     6.00\n"
                               "         saved               3.00\n"
                               "         program             0.25\n"
                               "         in all              7.75    11.00\n"
                               "         with gradient checkpointing on 1 of 1 layer\n"
                               "fits     no: it needs more\n");

  forecast.memory.reset();
  forecast.step.micro_batches = 1;
  const std::string none = text_of(report_of(forecast));
  CHECK(none.find("memory  ") == std::string::npos);
  CHECK(none.find(" tokens in 1 micro-batch; ") != std::string::npos);
  RunForecast nothing = forecast_of(0.5);
  nothing.memory->recomputed = 0;
  CHECK(text_of(report_of(nothing)).find("checkpointing") == std::string::npos);
}

TEST_CASE("forecast report: for scripts every number stands under its name") {
  RunForecast forecast = forecast_of(0.5);
  forecast.memory->host = train::HostMemory{.weights = 5 * gib, .optimizer = 6 * gib};
  forecast.advice = "buy more";
  const std::string step =
      R"({"sequences":8.0,"tokens":12345.5,"computed_tokens":12345.5,"micro_batches":2.25,"flops":4000000000000.0,)"
      R"("seconds":0.5,)"
      R"("tokens_per_second":24691.0,"communication_seconds":0.0,"hidden_seconds":0.0,"limited_by":"memory"})";
  const auto of = [&](const std::vector<Strategy>& ways) {
    return io::to_text(json_of(report_of(forecast), ways), -1);
  };
  const std::string found = of({});
  CHECK(found == R"({"fits":true,"model":"a model","device":"a device","step":)" + step +
                     R"(,"ranks":[{"rank":0,"device_gib":{"weights":4.0,"trained":0.5,"saved":1.0,"workspace":2.25,)"
                     R"("communication":0.0,"total":7.75},"host_gib":{"weights":5.0,"optimizer":6.0,"total":11.0},)"
                     R"("checkpointed_layers":3}],"communication":[],"advice":["buy more"]})");
  Strategy one = way(512, 0.5, 2, false), two = way(1024, 0.5, 3);
  one.recomputes = true;
  one.offload = "all";
  one.forecast.advice = "no";
  two.forecast.memory.reset();
  CHECK(of({one, two}) ==
        found.substr(0, found.size() - 1) +
            R"(,"strategies":[{"max_tokens_per_micro_batch":512,"gradient_checkpointing":true,"offload":"all",)"
            R"("zero_stage":0,"fits":false,"step":)" +
            step +
            R"(,"device_gib":2.0,"advice":["no"]},{"max_tokens_per_micro_batch":1024,"gradient_checkpointing":false,)"
            R"("offload":"none","zero_stage":0,"fits":true,"step":)" +
            step + R"(,"advice":[]}]})");
  forecast.memory.reset();
  forecast.fits = false;
  const io::Json json = json_of(report_of(forecast));
  CHECK(json.at("ranks").empty());
  CHECK(json.at("fits") == false);
}

TEST_CASE("forecast report: of several ranks it says what they exchange, and what of it one of them has") {
  RunForecast forecast = forecast_of(0.5);
  forecast.step.time.between_ranks = 0.125;
  forecast.traffic = {{"layers", "all-gather", 8, 3 * gib, 3 * gib},
                      {"gradients", "all-to-all", 4, gib / 4, gib},
                      {"norm", "all-gather", 4, 1000, 1000}};  // too little to be named
  Report report = report_of(forecast);
  report.ranks = "4 on 2 nodes";
  report.devices = report.nodes = 2;
  report.connected = gib / 2;
  report.has_host = true;
  const std::string text = text_of(report);
  CHECK(text.find("\nranks    4 on 2 nodes\n") != std::string::npos);
  CHECK(text.find("\nlinks    about 0.125 s of it; a rank sends layers 3.00 GiB, gradients 0.25 GiB\nmemory") !=
        std::string::npos);
  CHECK(text.find("\n         communication       0.50\n         in all              8.25\n"
                  "         of each of 2 ranks of a node\n") != std::string::npos);
  report.has_host = false;
  CHECK(text_of(report).find("of each of 2 ranks of a node, which share the weights' pages\n") != std::string::npos);
  const io::Json json = json_of(report);
  REQUIRE(json.at("ranks").size() == 4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(json.at("ranks")[rank].at("rank") == rank);
    CHECK(json.at("ranks")[rank].at("device_gib").at("communication") == 0.5);
    CHECK(json.at("ranks")[rank].at("device_gib").at("total") == 8.25);
  }
  REQUIRE(json.at("communication").size() == 3);
  CHECK(io::to_text(json.at("communication")[1], -1) ==
        R"({"what":"gradients","collective":"all-to-all","calls_per_step":4.0,"bytes_per_step":268435456.0})");
  CHECK(json.at("step").at("communication_seconds") == 0.125);

  std::vector<Strategy> ways = {way(512, 1.5, 2), way(1024, 1, 2)};
  ways[1].zero_stage = 3;
  ways[1].forecast.traffic = forecast.traffic;
  const std::string table = text_of(report, ways);
  CHECK(
      table.find("tokens a micro-batch  gradient_checkpointing  offload    zero_stage      s a step    tokens/s       "
                 "GiB  fits\n"
                 "512                   false                   none       0                    1.5       8,230      "
                 "2.50   yes\n"
                 "1,024                 false                   none       3                      1      12,346      "
                 "2.50   yes\n") != std::string::npos);
  CHECK(table.ends_with("the fastest that fits: --max_tokens_per_micro_batch 1024 --zero_stage 3\n"));
  // For scripts too each way needs what being connected takes.
  const io::Json told = json_of(report, ways).at("strategies");
  REQUIRE(told.size() == 2);
  for (const io::Json& one : told) CHECK(one.at("device_gib") == 2.5);
}

TEST_CASE("forecast report: a way that takes the same is known, and one that differs in anything is not") {
  const Strategy one = way(512, 1, 2);
  CHECK_FALSE(is_known({}, one));
  CHECK(is_known({one}, way(1024, 1, 2)));
  CHECK(is_known({way(1, 9, 9), one}, way(1024, 1, 2)));
  CHECK_FALSE(is_known({one}, way(512, 1.5, 2)));
  CHECK_FALSE(is_known({one}, way(512, 1, 2.5)));
  Strategy other = one;
  other.offload = "all";
  CHECK_FALSE(is_known({one}, other));
  other = one;
  other.zero_stage = 1;
  CHECK_FALSE(is_known({one}, other));
  other = one;
  other.recomputes = true;
  CHECK_FALSE(is_known({one}, other));
  other = one;
  other.forecast.memory.reset();
  CHECK_FALSE(is_known({one}, other));
  CHECK_FALSE(is_known({other}, one));
  CHECK(is_known({other}, other));
}

TEST_CASE("forecast report: the fastest fits, and of those within a hundredth the first that needs least") {
  const std::vector<Strategy> ways = {way(512, 1.02, 1), way(1024, 1.01, 3), way(2048, 1, 4), way(4096, 1.005, 3),
                                      way(8192, 0.5, 1, false)};
  CHECK(fastest_that_fits(ways) == &ways[1]);
  CHECK(fastest_that_fits({}) == nullptr);
  const std::vector<Strategy> none = {way(1, 1, 1, false)};
  CHECK(fastest_that_fits(none) == nullptr);
}

TEST_CASE("forecast report: ways stand in columns, and below them the keys of the one to take") {
  std::vector<Strategy> ways = {way(512, 1.5, 2), way(16384, 0.125, 1, false)};
  ways[0].recomputes = true;
  ways[0].offload = "optimizer";
  ways[1].forecast.advice = "it needs more";
  const Report report = report_of(forecast_of(1));
  const std::string table =
      "model    a model\ndevice   a device\n\n"
      "tokens a micro-batch  gradient_checkpointing  offload        s a step    tokens/s       GiB  fits\n"
      "512                   true                    optimizer           1.5       8,230      2.00   yes\n"
      "16,384                false                   none              0.125      98,764      1.00    no\n";
  CHECK(text_of(report, ways) ==
        table +
            "\nthe fastest that fits: --max_tokens_per_micro_batch 512 --gradient_checkpointing --offload optimizer\n");
  ways[0].forecast.fits = false;
  const std::string needs_least = "\nnone fits; the one that needs least, --max_tokens_per_micro_batch ";
  CHECK(text_of(report, ways).ends_with("    no\n" + needs_least + "16384: it needs more\n"));
  // One whose memory can't be told may need any.
  ways[1].forecast.memory.reset();
  ways[0].forecast.advice = "it needs 2 GiB";
  const std::string unknown = text_of(report, ways);
  CHECK(unknown.ends_with(needs_least + "512 --gradient_checkpointing --offload optimizer: it needs 2 GiB\n"));
  CHECK(unknown.find("0.125      98,764              no\n") != std::string::npos);
}

TEST_CASE("forecast report: thousands have a comma between three digits each") {
  for (const auto& one : {std::pair(1.0, "1"), std::pair(999.4, "999"), std::pair(999.6, "1,000"),
                          std::pair(123456.0, "123,456"), std::pair(1234567.0, "1,234,567")}) {
    RunForecast forecast = forecast_of(1);
    forecast.step.tokens = forecast.step.rows = one.first;
    const std::string text = text_of(report_of(forecast));
    CHECK(text.find(concat(" of x, ", one.second, " tokens in ")) != std::string::npos);
    CHECK(text.find(concat(" a step, ", one.second, " tokens/s;")) != std::string::npos);
  }
}

TEST_CASE("forecast report: numbers of many digits are rounded, each to as many as it has a use for") {
  train::MemoryPlan memory = plan();
  memory.needs = {4.123456 * gib, 1.234567 * gib, 2.345678 * gib};
  memory.trained.masters = 0.456789 * gib;
  memory.held = 0.789012 * gib;
  memory.host = train::HostMemory{.weights = 5.678901 * gib, .optimizer = 6.789012 * gib};
  RunForecast forecast = forecast_of(1 / 3.0, memory);
  forecast.step.sequences = 123.456789;
  forecast.step.tokens = 98765.4321;
  forecast.step.rows = 45678.9123;
  forecast.step.micro_batches = 12.3456789;
  forecast.step.work = {.products = 3.4567891e12, .attention = 1.2345678e12};
  forecast.step.time.between_ranks = 1 / 7.0;
  forecast.step.time.hidden = 1 / 3.0;
  forecast.traffic = {{"gradients", "all-to-all", 4.5, 1.2345678 * gib, gib}};
  Report report = report_of(forecast);
  report.has_host = true;
  report.connected = 0.345678 * gib;
  report.device_bytes = 16.28 * gib;
  report.data = "";
  CHECK(text_of(report) ==
        "model    a model\ndevice   a device\nranks    1, which holds all of it\n"
        "step     123.5 sequences, 98,765 tokens, 45,679 of them computed, in 12.3 micro-batches; 4.69 TFLOP\n"
        "time     about 0.333 s a step, 296,296 tokens/s; most of it goes to memory\n"
        "links    about 0.143 s of it, and 0.333 s beside the work; a rank sends gradients 1.23 GiB\n"
        "memory                GiB  device     host\n"
        "         weights             4.12     5.68\n"
        "         what trains         0.46     6.79\n"
        "         saved               1.23\n"
        "         workspace           2.35\n"
        "         program             0.33\n"
        "         communication       0.35\n"
        "         in all              8.84    12.47\n"
        "         with gradient checkpointing on 3 of 4 layers\n"
        "fits     yes, in 16.3 GiB\n");
  Strategy one{512, false, "none", 0, forecast};
  const std::string step =
      R"({"sequences":123.46,"tokens":98765.4,"computed_tokens":45678.9,"micro_batches":12.35,"flops":4691356900000.0,)"
      R"("seconds":0.333333,)"
      R"("tokens_per_second":296296.3,"communication_seconds":0.142857,"hidden_seconds":0.333333,"limited_by":"memory"})";
  CHECK(io::to_text(json_of(report, {one}), -1) ==
        R"({"fits":true,"model":"a model","device":"a device","step":)" + step +
            R"(,"ranks":[{"rank":0,"device_gib":{"weights":4.1235,"trained":0.4568,"saved":1.2346,"workspace":2.6779,)"
            R"("communication":0.3457,"total":8.8384},"host_gib":{"weights":5.6789,"optimizer":6.789,"total":12.4679},)"
            R"("checkpointed_layers":3}],"communication":[{"what":"gradients","collective":"all-to-all",)"
            R"("calls_per_step":4.5,"bytes_per_step":1325607081.4236672}],"advice":[],"strategies":[)"
            R"({"max_tokens_per_micro_batch":512,"gradient_checkpointing":false,"offload":"none","zero_stage":0,)"
            R"("fits":true,"step":)" +
            step + R"(,"device_gib":8.8384,"advice":[]}]})");
  CHECK(text_of(report, {one}).find("none       0                  0.333     296,296      8.84   yes\n") !=
        std::string::npos);
}

}  // namespace forecast_report_test
