# What a payload holds of the targets that a project builds.
#
#   payload_install(COMPONENT <component> TARGETS <target>... [FOLDER <folder>]
#                   [CARRY <root>... [DATA <folder>...]])
#       Installs the targets, and every shared library built here that they link, flat into lib/payload
#       (or lib/payload/<folder>: one a backend), as install component <component>. A library that an
#       earlier call installed stays there. What is installed is built by default.
#       Libraries that the targets need, directly or through others, and that lie below one of the
#       CARRY roots are copied beside them under the name by which they are needed; so are the DATA
#       folders of a root, without their first part, where it has them.
#
# Files have plain names: no version, no chain of links, so an archive holds each library once.
# A file finds the others beside it; one in a folder also those above.

include_guard(GLOBAL)

# Shared libraries of this build that the targets link, directly or through others.
function(_payload_linked out)
  set(todo ${ARGN})
  set(seen "")
  set(libraries "")
  while(todo)
    list(POP_FRONT todo target)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" target "${target}")
    if(NOT TARGET "${target}")
      continue()
    endif()
    get_target_property(alias "${target}" ALIASED_TARGET)
    if(alias)
      set(target "${alias}")
    endif()
    get_target_property(imported "${target}" IMPORTED)
    if(imported OR target IN_LIST seen)
      continue()
    endif()
    list(APPEND seen "${target}")
    get_target_property(type "${target}" TYPE)
    if(type STREQUAL "SHARED_LIBRARY")
      list(APPEND libraries "${target}")
    endif()
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(linked "${target}" ${property})
      if(linked)
        list(APPEND todo ${linked})
      endif()
    endforeach()
  endwhile()
  set(${out} "${libraries}" PARENT_SCOPE)
endfunction()

function(payload_install)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "COMPONENT;FOLDER" "TARGETS;CARRY;DATA")
  set(destination "lib/payload")
  set(rpath "${CMAKE_INSTALL_RPATH}")
  if(arg_FOLDER)
    string(APPEND destination "/${arg_FOLDER}")
    list(APPEND rpath "${CMAKE_INSTALL_RPATH}/..")
  endif()

  _payload_linked(libraries ${arg_TARGETS})
  set(targets ${arg_TARGETS} ${libraries})
  list(REMOVE_DUPLICATES targets)
  get_property(installed GLOBAL PROPERTY _payload_installed)
  if(installed)
    list(REMOVE_ITEM targets ${installed})
  endif()

  foreach(target IN LISTS targets)
    set_target_properties("${target}" PROPERTIES
      INSTALL_RPATH "${rpath}"
      EXCLUDE_FROM_ALL FALSE)
    foreach(property VERSION SOVERSION PUBLIC_HEADER PRIVATE_HEADER RESOURCE)
      set_property(TARGET "${target}" PROPERTY ${property})
    endforeach()
    install(TARGETS "${target}"
      RUNTIME DESTINATION "${destination}" COMPONENT "${arg_COMPONENT}"
      LIBRARY DESTINATION "${destination}" COMPONENT "${arg_COMPONENT}")
  endforeach()
  set_property(GLOBAL APPEND PROPERTY _payload_installed ${targets})

  list(REMOVE_DUPLICATES arg_CARRY)
  foreach(root IN LISTS arg_CARRY)
    _payload_carry("${root}")
    foreach(data IN LISTS arg_DATA)
      if(IS_DIRECTORY "${root}/${data}")
        cmake_path(GET data PARENT_PATH below)
        string(REGEX REPLACE "^[^/]+" "" below "${below}")
        install(DIRECTORY "${root}/${data}" DESTINATION "${destination}${below}" COMPONENT "${arg_COMPONENT}")
      endif()
    endforeach()
  endforeach()
endfunction()

# What a file needs is in the file, so this waits for the install step.
macro(_payload_carry root)
  foreach(target IN LISTS arg_TARGETS)
    install(CODE "
      file(REAL_PATH \"${root}\" root)
      file(GLOB folders LIST_DIRECTORIES true \"${root}/lib*\" \"${root}/lib*/*\" \"${root}/bin\" \"${root}/bin/*\")
      set(directories \"\")
      foreach(folder IN LISTS folders)
        if(IS_DIRECTORY \"\${folder}\" AND NOT folder MATCHES \"/stubs$\")
          list(APPEND directories \"\${folder}\")
        endif()
      endforeach()
      file(GET_RUNTIME_DEPENDENCIES MODULES \"$<TARGET_FILE:${target}>\" DIRECTORIES \${directories}
        RESOLVED_DEPENDENCIES_VAR needed UNRESOLVED_DEPENDENCIES_VAR absent
        CONFLICTING_DEPENDENCIES_PREFIX conflicts PRE_EXCLUDE_REGEXES \"^(api-ms|ext-ms)-\")
      foreach(library IN LISTS needed)
        file(REAL_PATH \"\${library}\" real)
        string(FIND \"\${real}\" \"\${root}/\" below)
        if(below EQUAL 0)
          cmake_path(GET library FILENAME name)
          message(STATUS \"Carrying: \${real}\")
          file(COPY_FILE \"\${real}\" \"\${CMAKE_INSTALL_PREFIX}/${destination}/\${name}\" ONLY_IF_DIFFERENT)
        endif()
      endforeach()" COMPONENT "${arg_COMPONENT}")
  endforeach()
endmacro()
