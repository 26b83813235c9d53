#include "topology/model/node.hpp"

#include <cctype>

namespace weft::internal::topology {

const char* name_of(NodeKind kind) {
    switch (kind) {
        case NodeKind::cpu: return "cpu";
        case NodeKind::pci: return "pci";
        case NodeKind::gpu: return "gpu";
        case NodeKind::nic: return "nic";
        case NodeKind::port: return "port";
        case NodeKind::nvswitch: return "nvswitch";
    }
    return "?";
}

const char* name_of(LinkKind kind) {
    switch (kind) {
        case LinkKind::local: return "local";
        case LinkKind::nvlink: return "nvlink";
        case LinkKind::c2c: return "c2c";
        case LinkKind::pci: return "pci";
        case LinkKind::sys: return "sys";
        case LinkKind::net: return "net";
    }
    return "?";
}

NodeKind kind_of(const Pci& pci) {
    const std::string group = pci.device_class.substr(0, 4), subclass = pci.device_class.substr(0, 6);
    if (group == "0x02") return NodeKind::nic;
    if (group != "0x03") return NodeKind::pci;
    if (subclass == "0x0302") return NodeKind::gpu;
    std::string vendor = pci.vendor, device = pci.device;
    for (std::string* text : {&vendor, &device})
        for (char& letter : *text) letter = char(std::tolower(static_cast<unsigned char>(letter)));
    // GPUs for consoles: Rage XL and ES1000.
    for (const char* console : {"0x4752", "0x515e", "0x5969"})
        if (vendor == "0x1002" && device == console) return NodeKind::pci;
    if (vendor.empty()) return subclass == "0x0300" ? NodeKind::pci : NodeKind::gpu;
    return vendor == "0x10de" || vendor == "0x1002" ? NodeKind::gpu : NodeKind::pci;
}

std::string normal_busid(std::string_view text) {
    // Digits of domain, bus and device, and the function.
    constexpr const char* separators = "::.";
    size_t digits[4] = {}, part = 0;
    std::string result;
    for (const char letter : text) {
        const char lower = letter >= 'A' && letter <= 'F' ? char(letter - 'A' + 'a') : letter;
        const bool digit = (lower >= '0' && lower <= '9') || (lower >= 'a' && lower <= 'f');
        if (digit) {
            if (++digits[part] > 8) return {};
        } else if (part < 3 && lower == separators[part]) {
            ++part;
        } else {
            return {};
        }
        result += lower;
    }
    if (part != 3 || digits[0] < 4 || digits[1] != 2 || digits[2] != 2 || digits[3] != 1) return {};
    size_t zeros = 0;
    while (digits[0] - zeros > 4 && result[zeros] == '0') ++zeros;
    return result.substr(zeros);
}

}  // namespace weft::internal::topology
