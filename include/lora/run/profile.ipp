#pragma once

#include "lora/core/config.hpp"
#include "lora/run/profile.hpp"

namespace lora::run {

LORA_INLINE void ProfileSum::add(const Profile& profile, std::size_t i) {
  const Profile::Node& node = profile.nodes()[i];
  const std::string& phase = profile.nodes()[profile.around(i, Profile::Kind::phase)].name;
  const auto place = static_cast<std::size_t>(std::find(phases.begin(), phases.end(), phase) - phases.begin());
  nanoseconds += static_cast<double>(node.nanoseconds);
  flops += node.flops;
  bytes += node.bytes;
  calls += node.calls;
  if (place < phases.size()) of_phase[place] += static_cast<double>(node.nanoseconds);
}

}  // namespace lora::run

namespace lora::run::detail {

LORA_INLINE std::string_view part_of(const Profile& profile, std::size_t i) {
  const std::size_t part = profile.around(i, Profile::Kind::part);
  if (part != 0) return profile.nodes()[part].name;
  const std::string& phase = profile.nodes()[profile.around(i, Profile::Kind::phase)].name;
  return phase == "head" ? std::string_view(phase) : std::string_view();
}

LORA_INLINE std::string_view work_of(const Profile& profile, std::size_t i) {
  const std::string_view part = part_of(profile, i), family = profile.nodes()[i].family;
  if (part == "head") return "head and loss";
  if (part == "low-rank") return "low-rank products";
  if (family == "gemm") return "frozen products";
  if (family == "attention") return "attention";
  if (family == "quantize") return "decoding weights";
  if (family == "optimizer" || family == "reduce") return "optimizer";
  return "elementwise";
}

/// The cells of a table's row with rates, empty if nothing was counted.
LORA_INLINE std::string rates_of(const ProfileSum& sum) {
  const auto rate = [&](double amount) {
    return amount > 0 && sum.nanoseconds > 0 ? fixed(amount / sum.nanoseconds, 1) : std::string();
  };
  return concat(" ", rate(sum.flops), " | ", rate(sum.bytes), " |\n");
}

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE ProfileTables::ProfileTables(const Profile& profile) : profile_(profile) {
  const auto& nodes = profile.nodes();
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    const Profile::Node& node = nodes[i];
    switch (node.kind) {
      case Profile::Kind::step:
        step_.add(profile, i);
        break;
      case Profile::Kind::phase:
        phases_[node.name].add(profile, i);
        break;
      case Profile::Kind::layer:
        layers_[node.number].phases.add(profile, i);
        break;
      case Profile::Kind::kernel: {
        const std::string work(detail::work_of(profile, i));
        kernels_.add(profile, i);
        works_[work].add(profile, i);
        families_[{node.family, std::string(detail::part_of(profile, i))}].add(profile, i);
        if (const Index number = nodes[profile.around(i, Profile::Kind::layer)].number; number >= 0) {
          layers_[number].kernels.add(profile, i);
          layers_[number].works[work].add(profile, i);
        }
        break;
      }
      default:
        break;
    }
    // A recomputed forward pass, inside the layer's backward pass.
    if (node.kind == Profile::Kind::phase && node.name == "recompute")
      layers_[nodes[profile.around(i, Profile::Kind::layer)].number].phases.of_phase[2] +=
          static_cast<double>(node.nanoseconds);
  }
}

LORA_INLINE std::string ProfileTables::text() const {
  return concat(profile_.steps(), " steps of ", fixed(milliseconds(step_.nanoseconds), 1), " ms on average\n\n",
                by_work(), "\n", by_kernel(), "\n", by_phase(), "\n", by_layer());
}

LORA_INLINE double ProfileTables::milliseconds(double nanoseconds) const {
  return nanoseconds * 1e-6 / static_cast<double>(std::max<Index>(1, profile_.steps()));
}

LORA_INLINE std::string ProfileTables::time(double nanoseconds) const {
  return nanoseconds > 0 ? fixed(milliseconds(nanoseconds), 2) : std::string();
}

LORA_INLINE std::string ProfileTables::share(double nanoseconds) const {
  return fixed(step_.nanoseconds > 0 ? 100 * nanoseconds / step_.nanoseconds : 0.0, 2) + " %";
}

LORA_INLINE std::string ProfileTables::by_work() const {
  std::string text = "| work | ms | share | GFLOP/s | GB/s |\n|---|---:|---:|---:|---:|\n";
  for (const auto* row : by_time(works_))
    text += concat("| ", row->first, " | ", time(row->second.nanoseconds), " | ", share(row->second.nanoseconds), " |",
                   detail::rates_of(row->second));
  const double outside = step_.nanoseconds - kernels_.nanoseconds;
  return text + concat("| outside kernels | ", time(outside), " | ", share(outside), " | | |\n");
}

LORA_INLINE std::string ProfileTables::by_kernel() const {
  std::string text = "| kernel | for |";
  for (const auto phase : ProfileSum::phases) text += concat(" ", phase, " |");
  text += " ms | share | calls | GFLOP/s | GB/s |\n|---|---|" + std::string("---:|---:|---:|---:|---:|") +
          "---:|---:|---:|---:|---:|\n";
  for (const auto* row : by_time(families_)) {
    const ProfileSum& sum = row->second;
    text += concat("| ", row->first.first, " | ", row->first.second, " |");
    for (const double nanoseconds : sum.of_phase) text += concat(" ", time(nanoseconds), " |");
    text += concat(" ", time(sum.nanoseconds), " | ", share(sum.nanoseconds), " | ",
                   sum.calls / std::max<Index>(1, profile_.steps()), " |", detail::rates_of(sum));
  }
  return text;
}

LORA_INLINE std::string ProfileTables::by_phase() const {
  std::string text = "| phase | ms | share |\n|---|---:|---:|\n";
  for (const auto& [name, sum] : phases_)
    text += concat("| ", name, " | ", time(sum.nanoseconds), " | ", share(sum.nanoseconds), " |\n");
  return text + "\n`recompute` lies within `backward`.\n";
}

LORA_INLINE std::string ProfileTables::by_layer() const {
  std::vector<std::string> works;
  for (const auto* row : by_time(works_))
    if (row->first != "head and loss" && row->first != "optimizer") works.push_back(row->first);
  std::string text = "| layer | forward | recompute | backward |", rule = "|---:|---:|---:|---:|";
  for (const std::string& work : works) {
    text += concat(" ", work, " |");
    rule += "---:|";
  }
  text += concat(" MB | GFLOP/s | GB/s |\n", rule, "---:|---:|---:|\n");
  for (const auto& [number, layer] : layers_) {
    const auto& phases = layer.phases.of_phase;
    text += concat("| ", number, " | ", time(phases[0]), " | ", time(phases[2]), " | ", time(phases[3]), " |");
    for (const std::string& work : works) {
      const auto found = layer.works.find(work);
      text += concat(" ", found == layer.works.end() ? std::string() : time(found->second.nanoseconds), " |");
    }
    // The factor from nanoseconds to milliseconds is the one from bytes to megabytes.
    text += concat(" ", significant(milliseconds(layer.kernels.bytes), 4), " |", detail::rates_of(layer.kernels));
  }
  return text;
}

LORA_INLINE void write_trace(const Profile& profile, const io::Path& path) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  bool first = true;
  for (const Profile::Trace& event : profile.traces()) {
    const Profile::Node& node = profile.nodes()[event.node];
    const bool is_layer = node.kind == Profile::Kind::layer;
    const std::string name = is_layer ? concat(node.name, " ", node.number) : node.name;
    io::Json args = io::Json::object();
    const Profile::Node& layer = profile.nodes()[profile.around(event.node, Profile::Kind::layer)];
    if (layer.number >= 0) args["layer"] = layer.number;
    if (!node.family.empty()) args["family"] = node.family;
    if (event.flops > 0) args["flops"] = event.flops;
    if (event.bytes > 0) args["bytes"] = event.bytes;
    text += concat(first ? "\n" : ",\n", "{\"name\":", io::to_text(io::Json(name), -1),
                   ",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":", fixed(static_cast<double>(event.begin) * 1e-3, 3),
                   ",\"dur\":", fixed(static_cast<double>(event.nanoseconds) * 1e-3, 3),
                   ",\"args\":", io::to_text(args, -1), "}");
    first = false;
  }
  io::write_file(path, std::string_view(text + "\n]}\n"));
}

}  // namespace lora::run
