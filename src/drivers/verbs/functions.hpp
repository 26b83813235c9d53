// functions.hpp: the functions of libibverbs, found at run time.
#pragma once
#include <memory>
#include <string>

#include "src/base/result.hpp"
#include "src/drivers/verbs/layout.hpp"

namespace weft::internal::verbs {

namespace abi {

// A function that the library lacks is null.
struct Functions {
#define WEFT_VERBS_FUNCTION(result, name, arguments) result(*name) arguments = nullptr;
#include "src/drivers/verbs/functions.def"
#undef WEFT_VERBS_FUNCTION
};

}  // namespace abi

using Functions = std::shared_ptr<const abi::Functions>;

// `library` as in WEFT_VERBS_LIBRARY. The library stays loaded. driver.missing, driver.disabled. Reentrant.
Result<Functions> load_functions(const std::string& library);
// The same for a transport, which needs more functions. It also makes registered memory safe against fork() where the
// kernel does not: the first registration of the process must come later.
Result<Functions> load_transport_functions(const std::string& library);

}  // namespace weft::internal::verbs
