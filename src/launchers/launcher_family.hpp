// launcher_family.hpp: reads who this process is from its launcher's variables, by the rows of launcher.def.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal {

// How a unique id reaches all ranks; derived: by nobody, each rank makes the same one.
enum class IdTransport { derived, given, torch_store, http, pmi, pmix };
// Where rank 0 of a derived id is met.
enum class RootSource { unknown, master_addr, slurm_nodes, pod_0 };

// A row of launcher.def, which says what the columns are.
struct Family {
    const char* name = "";  // for the log
    const char* sign = "";
    const char* variables = "";
    const char* rank = "";
    const char* size = "";  // empty: asked of the PMIx server
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

// What a launcher said; -1 where it did not.
struct LaunchedRank {
    int rank = 0;
    int ranks = 1;
    int local_rank = -1;
    int local_size = -1;
    bool on_one_host() const { return local_size == ranks; }
};

// The launcher that started this process; null if none did. A part of its variables is weftInvalidUsage, and the sentence
// names what is set and what is missing. If a later row overrules an inheritable one, `warning` names both; sizes above 1
// that differ are weftInvalidUsage.
Result<const Family*> find_family(std::string* warning = nullptr);
// Its numbers, checked.
Result<LaunchedRank> read_launched_rank(const Family& family);
// The variables that are set, in one line of text.
std::string family_identity(const Family& family);

}  // namespace weft::internal
