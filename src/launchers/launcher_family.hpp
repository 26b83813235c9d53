// launcher_family.hpp: reads rank and size of this process from its launcher's variables, by the rows of families.def.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal {

// How the unique id reaches all ranks; derived: each rank derives the same one.
enum class IdTransport { derived, given, torch_store, http, pmi, pmix };
// How the host of rank 0 is found for a derived id.
enum class RootSource { unknown, master_addr, slurm_nodes, pod_0 };

// A row of families.def, which explains the columns.
struct Family {
    const char* name = "";  // for the log
    const char* sign = "";
    const char* variables = "";
    const char* rank = "";
    const char* size = "";  // empty: the PMIx server has it
    const char* needs = "";
    const char* local_rank = "";
    const char* local_size = "";
    const char* identity = "";
    RootSource root = RootSource::unknown;
    IdTransport id_transport = IdTransport::derived;
    bool inheritable = false;
    const char* hint = "";
};
const std::vector<Family>& launcher_families();

// The numbers of a launcher; -1: unknown.
struct LaunchedRank {
    int rank = 0;
    int ranks = 1;
    int local_rank = -1;
    int local_size = -1;
    bool on_one_host() const { return local_size == ranks; }
};

// The launcher that started this process; null if none did. launcher.variables: only a part of its variables is set, or
// two launchers give different sizes above 1. If a later row overrules an inheritable one, `warning` names both.
Result<const Family*> find_family(std::string* warning = nullptr);
// The launcher's numbers, validated.
Result<LaunchedRank> read_launched_rank(const Family& family);
// The variables that are set, in one line of text.
std::string family_identity(const Family& family);

}  // namespace weft::internal
