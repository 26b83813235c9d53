#include "topology/model/speeds.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace weft::internal::topology {

namespace {

struct NvlinkRow {
    int sm_least;
    double gbs;
};
// Of one link in each direction: signalling rate less headers. The row for a GPU is the newest that is not newer than
// it.
constexpr NvlinkRow nvlink_rows[] = {{100, 40.1}, {90, 20.6}, {87, 20.0}, {86, 12.0}, {70, 20.0}, {60, 18.0}};
constexpr double nvlink_otherwise = 20.0;

struct XgmiRow {
    const char* gcn;  // the prefix of the architecture
    double gbs;
};
constexpr XgmiRow xgmi_rows[] = {{"gfx90a", 36}, {"gfx94", 48}, {"gfx95", 48}, {"", 24}};

struct SysRow {
    const char *arch, *vendor;
    int family, model_least;  // -1: any
    double gbs;
};
// The first row that fits. Intel: Emerald and Granite Rapids, Sapphire Rapids, Skylake, older ones.
constexpr SysRow sys_rows[] = {{"x86_64", "GenuineIntel", 6, 0xCF, 40}, {"x86_64", "GenuineIntel", 6, 0x8F, 22},
                               {"x86_64", "GenuineIntel", 6, 0x55, 10}, {"x86_64", "GenuineIntel", -1, -1, 6},
                               {"x86_64", "AuthenticAMD", -1, -1, 16},  {"x86_64", "HygonGenuine", -1, -1, 16},
                               {"x86_64", "CentaurHauls", -1, -1, 6},   {"x86_64", "  Shanghai  ", -1, -1, 6},
                               {"ppc64", nullptr, -1, -1, 32},          {"arm64", nullptr, -1, -1, 6}};
constexpr double sys_otherwise = 6;

Speed sys_speed(const Cpu& cpu) {
    for (const SysRow& row : sys_rows)
        if (cpu.arch == row.arch && (!row.vendor || cpu.vendor == row.vendor) &&
            (row.family < 0 || cpu.family == row.family) && cpu.model >= row.model_least)
            return {row.gbs, row.family < 0 && row.vendor && cpu.model == unknown && cpu.vendor == "GenuineIntel"};
    return {sys_otherwise, true};
}

constexpr double pci_rates[] = {2.5, 5, 8, 16, 32, 64, 128};

}  // namespace

double pci_transfers(std::string_view text) {
    double rate = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
    const std::string_view unit(end, size_t(text.data() + text.size() - end));
    const bool known = std::find(std::begin(pci_rates), std::end(pci_rates), rate) != std::end(pci_rates);
    return error == std::errc() && unit.substr(0, 5) == " GT/s" && known ? rate : 0;
}

Speed nvlink_speed(const Gpu& gpu, int links) {
    for (const XgmiRow& row : xgmi_rows)
        if (!gpu.gcn.empty() && gpu.gcn.starts_with(row.gcn)) return {links * row.gbs, false};
    const int sm = gpu.sm;
    const auto row = std::find_if(std::begin(nvlink_rows), std::end(nvlink_rows),
                                  [sm](const auto& it) { return sm >= it.sm_least; });
    const bool known = row != std::end(nvlink_rows);
    return {links * (known ? row->gbs : nvlink_otherwise), !known};
}

Speed pci_speed(const Pci& pci) {
    const double rate = pci_transfers(pci.link_speed);
    const double gts = rate > 0 ? rate : 8;
    // 8b/10b leaves four fifths of the raw bits, and packet headers take a quarter of the rest.
    const double lane_gbs = gts <= 5 ? gts * 0.075 : gts * 0.09375;
    const bool width_known = pci.link_width > 0;
    return {(width_known ? pci.link_width : 16) * lane_gbs, rate <= 0 || !width_known};
}

Speed sys_speed(const Cpu& one, const Cpu& other) {
    const Speed a = sys_speed(one), b = sys_speed(other);
    return {std::min(a.bandwidth_gbs, b.bandwidth_gbs), a.assumed || b.assumed};
}

Speed port_speed(const Port& port) {
    if (port.speed > 0) return {port.speed / 8000.0, false};
    return {10'000 / 8000.0, true};  // a network of 10 Gb/s, the lowest usual in such machines
}

double latency_us(LinkKind kind) {
    switch (kind) {
        case LinkKind::local: return 0;
        case LinkKind::nvlink: return 0.4;
        case LinkKind::c2c: return 0.3;
        case LinkKind::pci: return 0.3;
        case LinkKind::sys: return 0.2;
        case LinkKind::net: return 0;
    }
    return 0;
}

double network_latency_us(const Port& port) {
    return port.latency_us > 0 ? port.latency_us : 2.5;  // two NICs and a switch of InfiniBand
}

}  // namespace weft::internal::topology
