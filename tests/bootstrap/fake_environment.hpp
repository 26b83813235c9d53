// fake_environment.hpp: an environment with these variables of launchers' and of Weft's, and no others. Ends with none.
#pragma once
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace weft::internal::test {

using Variables = std::map<std::string, std::string>;

// Thread-bound: no other thread may read the environment meanwhile.
class FakeEnvironment {
  public:
    explicit FakeEnvironment(const Variables& variables) {
        clear();
        for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    }
    FakeEnvironment(const FakeEnvironment&) = delete;
    FakeEnvironment& operator=(const FakeEnvironment&) = delete;
    ~FakeEnvironment() { clear(); }

  private:
    // Tests may themselves run under a launcher, or in a pod.
    static bool is_launchers(const std::string& name) {
        for (const char* head : {"WEFT_", "SLURM_", "PMI_", "PMIX_", "OMPI_", "PRTE_", "OPAL_", "I_MPI_", "MPI_",
                                 "HOROVOD_", "TORCHELASTIC_", "LOCAL_", "MASTER_", "JOB_COMPLETION_"})
            if (name.rfind(head, 0) == 0 && name.rfind("WEFT_TEST_", 0) != 0) return true;
        return name == "RANK" || name == "WORLD_SIZE";
    }
    static void clear() {
        std::vector<std::string> names;
        for (char** entry = environ; *entry != nullptr; ++entry) {
            const std::string text = *entry, name = text.substr(0, text.find('='));
            if (is_launchers(name)) names.push_back(name);
        }
        for (const std::string& name : names) unsetenv(name.c_str());
    }
};

}  // namespace weft::internal::test
