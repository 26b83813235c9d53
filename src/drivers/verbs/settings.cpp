#include "src/drivers/verbs/settings.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

namespace weft::internal::verbs {

namespace {

// Long enough for a switch or a subnet manager to move traffic: 4.3 s and more. With another rail, failover is faster.
constexpr int timeout_alone = 20, timeout_with_rails = 17;

// Of two values for one option the user's own is an error and an alias's a warning, because it may be meant for NCCL.
template <class T>
Status take(const Options& options, OptionIndex option, Result<T> value, T& field, std::vector<std::string>& warnings) {
    if (value) {
        field = std::move(*value);
        return ok();
    }
    if (options.origin(option) != Origin::alias) return value.take_status();
    warnings.push_back(value.status().sentence() + ": it is left aside");
    return ok();
}

Result<AddressFamily> read_family(const char* variable, const std::string& text) {
    if (text.empty()) return AddressFamily::any;
    if (text == "AF_INET") return AddressFamily::ipv4;
    if (text == "AF_INET6") return AddressFamily::ipv6;
    return fail(error::option_value, "{} is `{}`; it is AF_INET, AF_INET6 or empty", variable, text);
}

Result<std::optional<AddressRange>> read_range(const char* variable, const std::string& text) {
    if (text.empty()) return std::optional<AddressRange>();
    Result<AddressRange> range = read_address_range(variable, text);
    if (!range) return range.take_status();
    return std::optional(*range);
}

Result<std::optional<uint16_t>> read_pkey(const char* variable, const std::string& text) {
    if (text.empty()) return std::optional<uint16_t>();
    std::string_view digits = text;
    const bool hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
    if (hexadecimal) digits.remove_prefix(2);
    uint16_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, hexadecimal ? 16 : 10);
    // Membership is bit 15. A key without other bits is invalid.
    if (error != std::errc() || end != digits.data() + digits.size() || (value & 0x7fff) == 0)
        return fail(error::option_value,
                    "{} is `{}`; it is the value of a partition key, as 0x8001 (its index is WEFT_IB_PKEY_INDEX)",
                    variable, text);
    return std::optional(value);
}

Result<GdrLevel> read_gdr_level(const char* variable, const std::string& text) {
    constexpr const char* names[] = {"LOC", "PIX", "PXB", "PHB", "SYS"};
    if (text.empty()) return GdrLevel::pxb;
    const auto* const found = std::find(std::begin(names), std::end(names), text);
    if (found != std::end(names)) return GdrLevel(found - std::begin(names));
    return fail(error::option_value, "{} is `{}`; it is LOC, PIX, PXB, PHB, SYS or empty", variable, text);
}

// Weft's own variable wins over an alias, and the value over the index, because indices differ between hosts.
Status agree_on_pkey(const Options& options, IbSettings& settings) {
    if (!settings.partition_key.value || settings.partition_key.index < 0) return ok();
    const bool own_value = options.origin(OptionIndex::ib_pkey) == Origin::environment;
    const bool own_index = options.origin(OptionIndex::ib_pkey_index) == Origin::environment;
    if (own_value && own_index)
        return fail(error::option_conflict,
                    "WEFT_IB_PKEY and WEFT_IB_PKEY_INDEX both choose the partition key: unset one of them");
    if (own_index)
        settings.partition_key.value.reset();
    else
        settings.partition_key.index = -1;
    return ok();
}

}  // namespace

PathOptions IbSettings::path_with(int rails) const {
    PathOptions wanted = path;
    if (!timeout_given) wanted.timeout = rails > 1 ? timeout_with_rails : timeout_alone;
    return wanted;
}

GidRules IbSettings::gid_rules(std::span<const PortGid> own) const {
    GidRules rules = gids;
    if (gid_index_by_alias && !has_gid_index(own, rules.index)) rules.index = -1;
    return rules;
}

Result<int> PartitionKey::choose(std::span<const uint16_t> table, const std::string& name) const {
    constexpr uint16_t full_member = 0x8000;
    if (index >= 0) {
        if (size_t(index) < table.size() && table[size_t(index)] != 0) return index;
        return fail(error::option_value, "{} has no partition key of index {}; its table has {}", name, index,
                    table.size());
    }
    // Membership is not compared: a limited member reaches full ones.
    const auto wanted = [&](uint16_t key) {
        if (!value) return (key & full_member) != 0;
        return key != 0 && (key | full_member) == (*value | full_member);
    };
    const auto found = std::find_if(table.begin(), table.end(), wanted);
    if (found != table.end()) return int(found - table.begin());
    if (!value) return 0;
    std::string all;
    for (const uint16_t key : table)
        if (key != 0) all += fmt::format("{}{:#x}", all.empty() ? "" : ", ", key);
    return fail(error::option_value, "{} has no partition key {:#x}; it has {}", name, *value,
                all.empty() ? "none" : all);
}

int IbSettings::pairs_on(int link_layer) const {
    // Switches of Ethernet choose one of several paths by the queue pair.
    return pairs_per_rail > 0 ? pairs_per_rail : link_layer == link_ethernet ? 2 : 1;
}

Result<IbSettings> read_ib_settings(const Options& options) {
    IbSettings settings;
    const auto taken = [&](OptionIndex option, auto value, auto& field) {
        return take(options, option, std::move(value), field, settings.warnings);
    };
    const auto name = [&](OptionIndex option) { return options.variable(option); };
    settings.disabled = options.ib_disable != 0;
    WEFT_TRY(taken(OptionIndex::ib_devices, DeviceFilter::read(name(OptionIndex::ib_devices), options.ib_devices),
                   settings.devices));
    settings.devices_by_alias = options.origin(OptionIndex::ib_devices) == Origin::alias;
    settings.gids.index = options.ib_gid_index;
    settings.gid_index_by_alias = options.origin(OptionIndex::ib_gid_index) == Origin::alias;
    WEFT_TRY(taken(OptionIndex::ib_addr_family, read_family(name(OptionIndex::ib_addr_family), options.ib_addr_family),
                   settings.gids.family));
    WEFT_TRY(taken(OptionIndex::ib_addr_range, read_range(name(OptionIndex::ib_addr_range), options.ib_addr_range),
                   settings.gids.range));
    settings.gids.roce_version = options.ib_roce_version;
    settings.timeout_given = options.ib_timeout > 0;
    if (settings.timeout_given) settings.path.timeout = options.ib_timeout;
    settings.path.retries = options.ib_retry_count;
    WEFT_TRY(taken(OptionIndex::ib_pkey, read_pkey(name(OptionIndex::ib_pkey), options.ib_pkey),
                   settings.partition_key.value));
    settings.partition_key.index = options.ib_pkey_index;
    WEFT_TRY(agree_on_pkey(options, settings));
    settings.path.service_level = options.ib_sl;
    settings.path.traffic_class = options.ib_traffic_class;
    if (options.ib_adaptive_routing >= 0) settings.adaptive_routing.wanted = options.ib_adaptive_routing != 0;
    settings.adaptive_routing.least_bytes = size_t(options.ib_ar_bytes);
    settings.pairs_per_rail = options.ib_qps;
    settings.striped_bytes = size_t(options.ib_split_bytes);
    settings.relaxed_ordering = options.ib_relaxed_ordering != 0;
    settings.ece = options.ib_ece != 0;
    WEFT_TRY(taken(OptionIndex::gdr_level, read_gdr_level(name(OptionIndex::gdr_level), options.gdr_level),
                   settings.gdr_level));
    return settings;
}

}  // namespace weft::internal::verbs
