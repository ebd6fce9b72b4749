# Libraries of this machine that a payload takes along.
#
#   payload_system_libraries(COMPONENT <component> FOLDER <folder> TARGET <target>
#                            [DIRECTORIES <dir>...] [LICENCE <file>])
#       Installs, into lib/payload/<folder>, every library that the target needs and that a user's machine
#       can't be expected to have: under the name by which it is looked for, without a chain of links.
#       DIRECTORIES are searched too. Each needs its licence as licenses/<name>.txt; LICENCE is for those
#       that have none there.

include_guard(GLOBAL)

function(payload_system_libraries)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "COMPONENT;FOLDER;TARGET;LICENCE" "DIRECTORIES")
  set(licences "${CMAKE_CURRENT_SOURCE_DIR}/licenses")
  set(destination "lib/payload/${arg_FOLDER}")
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES
      LIBRARIES \"$<TARGET_FILE:${arg_TARGET}>\"
      RESOLVED_DEPENDENCIES_VAR resolved
      UNRESOLVED_DEPENDENCIES_VAR unresolved
      DIRECTORIES ${arg_DIRECTORIES}
      # What every machine has: internal/verify/platform.go holds the same list.
      PRE_EXCLUDE_REGEXES \"^(libc|libm|libmvec|libdl|libpthread|librt|libresolv|libgcc_s|libstdc[+][+]|libcuda|ld-linux.*)[.]so\"
                          \"^(api-ms-|ext-ms-|nvcuda[.]dll)\"
      # What comes with the target is installed with it, and Windows brings its own.
      POST_EXCLUDE_REGEXES \"[.]prebuilt/\" \"[Ss]ystem32\")
    if(unresolved)
      message(FATAL_ERROR \"collecting what ${arg_TARGET} needs: \${unresolved} can't be found\")
    endif()
    foreach(file IN LISTS resolved)
      cmake_path(GET file FILENAME name)
      string(REGEX REPLACE \"^lib([A-Za-z_]+).*\$\" \"\\\\1\" licence \"\${name}\")
      set(licence \"${licences}/\${licence}.txt\")
      if(NOT EXISTS \"\${licence}\" AND NOT \"${arg_LICENCE}\" STREQUAL \"\")
        set(licence \"${arg_LICENCE}\")
      endif()
      if(NOT EXISTS \"\${licence}\")
        message(FATAL_ERROR \"collecting licences: ${arg_TARGET} needs \${file}, and there is no \${licence}\")
      endif()
      file(REAL_PATH \"\${file}\" real)
      file(MAKE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}/${destination}\")
      file(COPY_FILE \"\${real}\" \"\${CMAKE_INSTALL_PREFIX}/${destination}/\${name}\" ONLY_IF_DIFFERENT)
      file(INSTALL \"\${licence}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/payload/licenses/${arg_FOLDER}\")
    endforeach()
  " COMPONENT "${arg_COMPONENT}")
endfunction()
