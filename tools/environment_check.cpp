#include "tools/environment_check.hpp"

#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/comm/joining.hpp"
#include "src/net/address.hpp"
#include "src/net/listener.hpp"
#include "src/selector/algo_rules.hpp"
#include "src/selector/tuning_file.hpp"

namespace weft::internal::tools {

EnvironmentCheck check_environment(const Catalog& catalog) {
    EnvironmentCheck check;
    const auto add = [&](const Status& status) {
        if (!status) check.errors.push_back(status.sentence());
    };
    add(options_status());
    add(requested_cpu_kernels().take_status());
    add(gpu_path_asked_for().take_status());
    add(check_transports());
    if (!options().port_range.empty()) add(net::parse_port_range(options().port_range).take_status());
    // A machine without a network is no error, unless the environment asks for an interface.
    if (!options().socket_ifname.empty() || !options().socket_family.empty()) add(net::local_addresses().take_status());
    add(tuning_of_file(options().tune_file).take_status());
    add(catalog.check("WEFT_ALGO", options().algo));
    auto any_order = any_order_asked_for();
    if (any_order && *any_order && options().deterministic)
        check.errors.push_back(
            "WEFT_ALGO_FILES_ORDER=any and WEFT_DETERMINISTIC=1 exclude each other: unset one of them");
    add(any_order.take_status());
    check.warnings = options().warnings;
    for (const Catalog::LeftOut& one : catalog.left_out())
        if (one.faulty) check.warnings.push_back("WEFT_ALGO_FILES: " + one.message);
    for (const std::string& sentence : catalog.assumptions()) check.warnings.push_back("WEFT_ALGO_FILES: " + sentence);
    for (const std::string& sentence : make_log_settings(options()).warnings) check.warnings.push_back(sentence);
    return check;
}

}  // namespace weft::internal::tools
