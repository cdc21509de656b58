// The module: every room is bound in the file of its name.
#include "bindings/border.h"

NB_MODULE(_core, module) {
    using namespace stead::bindings;
    module.doc() = "Native core of stead: simulation and search.";
    nb::set_leak_warnings(false);  // a Problem that lives as long as the interpreter is no mistake of its user
    bind_problem(module);
    bind_sim(module);
    bind_placeto(module);
    bind_bounds(module);
    bind_build(module);
    bind_walk(module);
    bind_stages(module);
    bind_search(module);
    bind_balance(module);
}
